/* SPDX-License-Identifier: BSD-2-Clause */
/* Stands in for the system library while the shim is linked: only its name is used. */
