/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who the other side of a unix socket is (SO_PEERCRED). A restart makes both ends of a connection in one process, which the kernel then names at both. What the program knows stands in
 *
 *   RUNDIR/JOB/peer-INODE -> "NOW SHOWN"
 *
 * a symbolic link: the socket's inode, the pid that the kernel says and the one that is said for it. So it holds for whoever has the socket, handed on or inherited, also of another program. It is left there
 * when the socket is closed: a later socket with that number is not shown with it unless the kernel says NOW of it, too.
 */
#pragma once

#define PEER_LINK_PREFIX "peer-"
