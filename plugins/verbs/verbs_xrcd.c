/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Domains of extended connections, and the handles of targets that others have made (ibv_open_qp). Owns the shadows of both.
 *
 * A domain is known to all who open it by one file, whatever process they are in; what they have in common is the file itself, not its descriptor,
 * which may be closed since. So the file's name is noted as the domain is opened, and a restart opens the domain by the file of
 * that name: all processes of the job find the same one, as do programs that open it later. One without a file (descriptor -1) is its shadow's alone.
 * A checkpoint is refused when the name leads to another file now, for then nothing says by what a domain shall be the same.
 *
 * A target that was opened lives as long as who made it: at a restart its handle is opened again when the new numbers are known, and where its process is gone it
 * stays what it was, a handle of one in error. A handle never posts and is nobody's peer: the drain leaves it out.
 */
#include "plugins/verbs/verbs_internal.h"

#include "base/sys.h"

#include <sys/stat.h>
#include <unistd.h>

/* Which file it is, and how it is called. 0, or an errno. */
static int file_note(struct shadow_xrcd *x, const struct ibv_xrcd_init_attr *attr)
{
	static const char front[] = "/proc/thread-self/fd/";
	char link[sizeof(front) + 10], digits[12];
	struct stat st;
	size_t n = 0;
	ssize_t len;

	x->attr = *attr;
	if (attr->fd < 0)
		return 0;
	if (fstat(attr->fd, &st))
		return errno;
	x->dev = st.st_dev;
	x->ino = st.st_ino;
	for (unsigned int rest = (unsigned int)attr->fd; rest || !n; rest /= 10)
		digits[n++] = (char)('0' + rest % 10);
	memcpy(link, front, sizeof(front));
	for (size_t i = 0; i < n; i++)
		link[sizeof(front) - 1 + i] = digits[n - 1 - i];
	link[sizeof(front) - 1 + n] = '\0';
	len = readlink(link, x->path, sizeof(x->path) - 1);
	x->path[len < 0 ? 0 : len] = '\0';
	return 0;
}

static struct ibv_xrcd *real_domain(struct ibv_context *real, struct ibv_xrcd_init_attr *attr)
{
	struct ibv_xrcd *(*open)(struct ibv_context *, struct ibv_xrcd_init_attr *) = VERBS_REAL_OP(real, open_xrcd);

	return open ? open(real, attr) : verbs_unsupported();
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct shadow_xrcd *x;

	fermata_device_enter();
	x = fermata_alloc(sizeof(*x));
	if (!x)
		errno = ENOMEM;
	else if (attr->comp_mask & IBV_XRCD_INIT_ATTR_FD && file_note(x, attr))
		errno = EBADF;
	else
		x->real = real_domain(shadow_context(context)->real, attr);
	if (x && x->real) {
		x->pub.context = context;
		verbs_list_add(&shadow_context(context)->xrcds, &x->link);
	} else {
		fermata_free(x);
		x = NULL;
	}
	fermata_device_leave();
	return x ? &x->pub : NULL;
}

static int close_xrcd(struct ibv_xrcd *xrcd)
{
	struct shadow_xrcd *x = shadow_xrcd(xrcd);
	int (*close)(struct ibv_xrcd *);
	int r;

	fermata_device_enter();
	close = VERBS_REAL_OP(x->real->context, close_xrcd);
	r = close ? close(x->real) : EOPNOTSUPP;
	if (!r) {
		verbs_list_del(&x->link);
		fermata_free(x);
	}
	fermata_device_leave();
	return r;
}

/* ---- handles of other processes' targets ---- */

static struct ibv_qp *real_open(struct shadow_qp *qp, uint32_t number)
{
	struct ibv_context *real = shadow_context(qp->pub.context)->real;
	struct ibv_qp *(*open)(struct ibv_context *, struct ibv_qp_open_attr *) = VERBS_REAL_OP(real, open_qp);
	struct ibv_qp_open_attr a = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE |
						   IBV_QP_OPEN_ATTR_CONTEXT,
				      .qp_num = number, .xrcd = shadow_xrcd(qp->xrcd)->real, .qp_context = qp,
				      .qp_type = IBV_QPT_XRC_RECV };

	return open ? open(real, &a) : verbs_unsupported();
}

/* 1: somebody has published what its number is now. */
static int number_find(const struct shadow_qp *qp, uint32_t *ret)
{
	const struct verbs_port *port = &shadow_context(qp->pub.context)->device->port[1];

	*ret = qp->pub.qp_num;
	return verbs_moved && verbs_qpn_find(qp->pub.qp_num, verbs_port_first(port), ret);
}

static struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr)
{
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct shadow_qp *qp;
	uint32_t number;

	if ((attr->comp_mask & ~IBV_QP_OPEN_ATTR_CONTEXT) != needed || attr->qp_type != IBV_QPT_XRC_RECV) {
		errno = EINVAL;
		return NULL;
	}
	fermata_device_enter();
	qp = verbs_qp_opened(context, attr);
	if (qp) {
		number_find(qp, &number);
		verbs_qp_real_set(qp, real_open(qp, number));
	}
	if (qp && qp->real) {
		qp->pub.handle = qp->real->handle;
		qp->pub.state = qp->real->state;
		verbs_list_add(&shadow_context(context)->qps, &qp->link);
	} else if (qp) {
		verbs_qp_free(qp);
		qp = NULL;
	}
	fermata_device_leave();
	return qp ? &qp->pub : NULL;
}

void verbs_xrcd_fill(struct verbs_context *v)
{
	v->open_xrcd = open_xrcd;
	v->close_xrcd = close_xrcd;
	v->open_qp = open_qp;
}

/* ---- checkpoint and restart ---- */

int verbs_xrcd_settle(const struct shadow_xrcd *x)
{
	struct stat st;

	if (x->attr.fd < 0 || !(x->attr.comp_mask & IBV_XRCD_INIT_ATTR_FD))
		return 0;
	if (!stat(x->path, &st) && st.st_dev == x->dev && st.st_ino == x->ino)
		return 0;
	return fermata_fail(-EOPNOTSUPP, "the file of a domain of extended connections (XRC) is not called %s any more, without which the "
			    "domain cannot be saved", x->path);
}

int verbs_xrcd_recreate(struct shadow_context *c, struct shadow_xrcd *x)
{
	struct ibv_xrcd_init_attr attr = x->attr;
	char buf[sizeof(x->path)];
	const char *now;
	int fd = -1, r;

	if (attr.comp_mask & IBV_XRCD_INIT_ATTR_FD && attr.fd >= 0) {
		now = fermata_path_now(x->path, buf, sizeof(buf));
		if (!now)
			return -ENAMETOOLONG;
		if (now == buf)
			memcpy(x->path, buf, sizeof(buf));
		fd = raw_open(x->path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
		if (fd < 0)
			return fermata_fail(fd, "%s, the file of a domain of extended connections (XRC), cannot be opened", x->path);
		attr.fd = fd;
	}
	fermata_device_enter();
	x->real = real_domain(c->real, &attr);
	r = errno;
	fermata_device_leave();
	if (fd >= 0)
		raw_close(fd);
	return x->real ? 0 : fermata_fail(-r, "a domain of extended connections (XRC) cannot be opened again on %s (error %d)",
					  c->device->pub.name, r);
}

/* Everybody's numbers are known, and who made it has made it again. */
void verbs_qp_reopen(struct shadow_qp *qp)
{
	uint32_t number;

	fermata_device_enter();
	verbs_qp_real_set(qp, number_find(qp, &number) ? real_open(qp, number) : NULL);
	if (!qp->real)
		qp->pub.state = IBV_QPS_ERR;
	fermata_device_leave();
}
