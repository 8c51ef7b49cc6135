/* SPDX-License-Identifier: BSD-2-Clause */
/* Imports what `fermata check` has something to say of. It is not run: nothing defines most of it. */
extern void fanotify_init(void) __attribute__((weak));
extern void io_uring_queue_init(void) __attribute__((weak));
extern void io_setup(void) __attribute__((weak));
extern void pfm_initialize(void) __attribute__((weak));
extern void seccomp_load(void) __attribute__((weak));
extern void setns(void) __attribute__((weak));
extern void keyctl_link(void) __attribute__((weak));
extern void dlmopen(void) __attribute__((weak));
extern void mlx5dv_is_supported(void) __attribute__((weak));
extern void efadv_query_device(void) __attribute__((weak));
extern void ibv_get_device_list(void) __attribute__((weak));

void (*volatile used[])(void) = { fanotify_init, io_uring_queue_init, io_setup, pfm_initialize, seccomp_load, setns, keyctl_link, dlmopen, mlx5dv_is_supported,
				  efadv_query_device, ibv_get_device_list };

int main(void)
{
	return used[0] == 0;
}
