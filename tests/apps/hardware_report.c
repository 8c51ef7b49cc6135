/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * For GROMACS on a host whose hypervisor does not tell of rdtscp although the processor has it: Debian's build looks for that as it reports the hardware
 * that it has found, and ends. This stands before that function (LD_PRELOAD), so nothing is reported, and nothing else is changed.
 */
void _Z27gmx_print_detected_hardwareP8_IO_FILEbRKN3gmx8MDLoggerEPK13gmx_hw_info_t(void);

__attribute__((visibility("default")))
void _Z27gmx_print_detected_hardwareP8_IO_FILEbRKN3gmx8MDLoggerEPK13gmx_hw_info_t(void)
{
}
