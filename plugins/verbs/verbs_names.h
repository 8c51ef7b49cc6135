/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The one table of the libibverbs functions that are wrapped: X(answer, name, (parameters)). The backend's functions are looked up
 * from it, and each name is defined and exported once in this folder, in the file of its object kind. Functions that touch no
 * object (ibv_wc_status_str, ibv_rate_to_mult, ..) are not here: the program's own libibverbs has them. Of the PRIVATE names
 * only ibv_query_gid_type may ever stand here: providers bind the others by name.
 */
#pragma once

#define VERBS_NAMES(X)                                                                                     \
	/* verbs_device.c */                                                                               \
	X(struct ibv_device **, ibv_get_device_list, (int *num))                                           \
	X(void, ibv_free_device_list, (struct ibv_device **list))                                          \
	X(const char *, ibv_get_device_name, (struct ibv_device *device))                                  \
	X(int, ibv_get_device_index, (struct ibv_device *device))                                          \
	X(__be64, ibv_get_device_guid, (struct ibv_device *device))                                        \
	X(int, ibv_fork_init, (void))                                                                      \
	X(enum ibv_fork_status, ibv_is_fork_initialized, (void))                                           \
	/* verbs_context.c */                                                                              \
	X(struct ibv_context *, ibv_open_device, (struct ibv_device *device))                              \
	X(int, ibv_close_device, (struct ibv_context *context))                                            \
	X(struct ibv_context *, ibv_import_device, (int cmd_fd))                                           \
	X(int, ibv_query_device, (struct ibv_context *context, struct ibv_device_attr *attr))              \
	X(int, ibv_query_port, (struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)) \
	X(int, ibv_query_gid, (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid))  \
	X(int, _ibv_query_gid_ex, (struct ibv_context *context, uint32_t port, uint32_t index,             \
				   struct ibv_gid_entry *entry, uint32_t flags, size_t size))              \
	X(ssize_t, _ibv_query_gid_table, (struct ibv_context *context, struct ibv_gid_entry *entries,      \
					  size_t max, uint32_t flags, size_t size))                        \
	X(int, ibv_query_gid_type, (struct ibv_context *context, uint8_t port, unsigned int index, int *type)) \
	X(int, ibv_query_pkey, (struct ibv_context *context, uint8_t port, int index, __be16 *pkey))       \
	X(int, ibv_get_pkey_index, (struct ibv_context *context, uint8_t port, __be16 pkey))               \
	/* verbs_async.c */                                                                                \
	X(int, ibv_get_async_event, (struct ibv_context *context, struct ibv_async_event *event))          \
	X(void, ibv_ack_async_event, (struct ibv_async_event *event))                                      \
	/* verbs_pd.c */                                                                                   \
	X(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *context))                                    \
	X(int, ibv_dealloc_pd, (struct ibv_pd *pd))                                                        \
	X(struct ibv_pd *, ibv_import_pd, (struct ibv_context *context, uint32_t handle))                  \
	X(void, ibv_unimport_pd, (struct ibv_pd *pd))                                                      \
	/* verbs_mr.c */                                                                                   \
	X(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *pd, void *addr, size_t length, int access))         \
	X(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,  \
					     int access))                                                  \
	X(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, \
					      unsigned int access))                                        \
	X(struct ibv_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t length,          \
					       uint64_t iova, int fd, int access))                         \
	X(int, ibv_rereg_mr, (struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,  \
			      int access))                                                                 \
	X(int, ibv_dereg_mr, (struct ibv_mr *mr))                                                          \
	X(struct ibv_mr *, ibv_import_mr, (struct ibv_pd *pd, uint32_t handle))                            \
	X(void, ibv_unimport_mr, (struct ibv_mr *mr))                                                      \
	X(struct ibv_dm *, ibv_import_dm, (struct ibv_context *context, uint32_t handle))                  \
	X(void, ibv_unimport_dm, (struct ibv_dm *dm))                                                      \
	/* verbs_channel.c */                                                                              \
	X(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *context))               \
	X(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *channel))                               \
	X(int, ibv_get_cq_event, (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context))   \
	X(void, ibv_ack_cq_events, (struct ibv_cq *cq, unsigned int count))                                \
	/* verbs_cq.c */                                                                                   \
	X(struct ibv_cq *, ibv_create_cq, (struct ibv_context *context, int cqe, void *cq_context,         \
					   struct ibv_comp_channel *channel, int vector))                  \
	X(int, ibv_resize_cq, (struct ibv_cq *cq, int cqe))                                                \
	X(int, ibv_destroy_cq, (struct ibv_cq *cq))                                                        \
	/* verbs_qp.c */                                                                                   \
	X(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr))              \
	X(int, ibv_query_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,                       \
			      struct ibv_qp_init_attr *init))                                              \
	X(int, ibv_modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask))                     \
	X(int, ibv_destroy_qp, (struct ibv_qp *qp))                                                        \
	X(struct ibv_qp_ex *, ibv_qp_to_qp_ex, (struct ibv_qp *qp))                                        \
	X(int, ibv_query_ece, (struct ibv_qp *qp, struct ibv_ece *ece))                                    \
	X(int, ibv_set_ece, (struct ibv_qp *qp, struct ibv_ece *ece))                                      \
	X(int, ibv_query_qp_data_in_order, (struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags))     \
	X(int, ibv_attach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))              \
	X(int, ibv_detach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid))              \
	/* verbs_srq.c */                                                                                  \
	X(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr))           \
	X(int, ibv_modify_srq, (struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask))                 \
	X(int, ibv_query_srq, (struct ibv_srq *srq, struct ibv_srq_attr *attr))                            \
	X(int, ibv_destroy_srq, (struct ibv_srq *srq))                                                     \
	/* verbs_ah.c */                                                                                   \
	X(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr))                   \
	X(int, ibv_init_ah_from_wc, (struct ibv_context *context, uint8_t port, struct ibv_wc *wc,         \
				     struct ibv_grh *grh, struct ibv_ah_attr *attr))                       \
	X(struct ibv_ah *, ibv_create_ah_from_wc, (struct ibv_pd *pd, struct ibv_wc *wc,                   \
						   struct ibv_grh *grh, uint8_t port))                     \
	X(int, ibv_destroy_ah, (struct ibv_ah *ah))                                                        \
	X(int, ibv_resolve_eth_l2_from_gid, (struct ibv_context *context, struct ibv_ah_attr *attr,        \
					     uint8_t mac[6], uint16_t *vid))

/* Of softrdma alone: files that are looked for where a device is (verbs_cm.c); an event that is told again (verbs_events.c), counted (verbs_notify.c), or taken without a wait (verbs_channel.c); what the drain asks
 * (verbs_drain.c); what the end of the process does (verbs_backend.c). */
#define VERBS_SOFT_NAMES(X)                                                                                \
	X(void, softrdma_memory, (void *(*map)(void *, size_t, int, int, int, off_t), int (*unmap)(void *, size_t))) \
	X(void, softrdma_exit_bracket, (void (*enter)(void), void (*leave)(void)))                         \
	X(uint32_t, softrdma_sends_left, (struct ibv_qp *qp))                                              \
	X(uint32_t, softrdma_refusals, (struct ibv_qp *qp))                                                \
	X(uint32_t, softrdma_events_unread, (struct ibv_cq *cq, uint32_t *ret_armed))                      \
	X(int, softrdma_get_cq_event, (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)) \
	X(int, softrdma_established, (struct ibv_qp *qp, int now))                                         \
	X(int, softrdma_key_alias, (struct ibv_mr *mr, uint32_t key))                                      \
	X(int, softrdma_on_the_wire, (struct ibv_context *context))                                        \
	X(int, softrdma_async_raise, (struct ibv_context *context, const struct ibv_async_event *event))   \
	X(int, softrdma_node_stat, (const char *path, struct stat *ret))

/* rdma_cm, which softrdma has for its own ids and for those of the kernel's RoCE devices (doc/softrdma.md). */
#define VERBS_CM_NAMES(X)                                                                                  \
	X(int, softrdma_cm_kernel, (const char *root))                                                     \
	X(int, softrdma_cm_open, (const char *path, int flags))                                            \
	X(long, softrdma_cm_command, (int fd, const void *data, size_t n, uint64_t *channel))              \
	X(int, softrdma_cm_fstat, (int fd, struct stat *st))                                               \
	X(int, softrdma_cm_close, (int fd))                                                                \
	X(int, softrdma_cm_next, (int fd))                                                                 \
	X(uint32_t, softrdma_cm_ids, (void))                                                               \
	X(int, softrdma_cm_settle, (void))                                                                 \
	X(int, softrdma_cm_each, (int (*fn)(const void *own, const void *other, int fd, void *arg), void *arg)) \
	X(void, softrdma_cm_hold, (int held))                                                              \
	X(int, softrdma_cm_lines, (int (*fn)(const void *own, const void *other, uint32_t said, uint32_t heard, const char *where, void *arg), void *arg)) \
	X(int, softrdma_cm_host, (uint32_t nth, void *ret_address))                                        \
	X(uint64_t, softrdma_cm_ends, (int fd, uint32_t handle, void *own, void *other))                   \
	X(uint32_t, softrdma_cm_peer, (int fd, uint32_t id))                                               \
	X(int, softrdma_cm_here, (const void *address))                                                    \
	X(int, softrdma_cm_there, (const void *address, const void *now))                                  \
	X(void, softrdma_cm_hosts_forget, (void))                                                          \
	X(int, softrdma_cm_door, (void))                                                                   \
	X(int, softrdma_cm_door_at, (const void *address, uint16_t port, uint32_t pid))                    \
	X(long, softrdma_cm_save, (void *to, size_t room))                                                 \
	X(int, softrdma_cm_load, (const void *from, size_t n))                                             \
	X(int, softrdma_cm_join, (int accept))
