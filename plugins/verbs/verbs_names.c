/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The names of the fabric after a restart, as verbs_names_make.c has put them together for everybody: mapped, and set out as the tables that verbs_fabric.c,
 * verbs_fabric_keys.c and verbs_fabric_numbers.c read. Owns the tables. The program stands still; or it has been begun after the restart and looks for its first
 * device, verbs_devices_lock held.
 */
#include "plugins/verbs/verbs_internal.h"
#include "plugins/verbs/verbs_keys.h"
#include "plugins/verbs/verbs_table.h"

#include "base/log.h"

struct keys *verbs_lkeys, *verbs_rkeys;
struct table *verbs_qpns, *verbs_ports, *verbs_real_qpns, *verbs_real_ports;
struct table *verbs_windows, *verbs_srqns, *verbs_owners, *verbs_selves;
uint32_t verbs_self;
const struct names *verbs_names;
const struct port_name *verbs_port_names;

static void *at(uint64_t offset)
{
	return offset ? (char *)(uintptr_t)verbs_names + offset : NULL;
}

static void set_out(const struct names *n)
{
	static const struct names none;

	verbs_names = n;
	n = n ? n : &none;
	verbs_port_names = at(n->port_names);
	verbs_ports = at(n->ports);
	verbs_real_ports = at(n->real_ports);
	verbs_qpns = at(n->qpns);
	verbs_real_qpns = at(n->real_qpns);
	verbs_srqns = at(n->srqns);
	verbs_windows = at(n->windows);
	verbs_owners = at(n->owners);
	verbs_selves = at(n->selves);
	verbs_rkeys = at(n->keys);
}

void verbs_fabric_forget(void)
{
	set_out(NULL);
}

/* Keys that others have, too, are told to the device: it is asked by them where nobody can tell whose they are. */
static void keys_alias(void)
{
	struct shadow_context *c;
	struct shadow_mr *mr;
	int r = 0;

	if (!verbs_backend.softrdma_key_alias || !verbs_rkeys || !verbs_rkeys->again)
		return;
	for_each_context(c)
		list_each(mr, &c->mrs, link)
			if (!r && mr->real->rkey != mr->pub.rkey && verbs_key_is_ambiguous(mr->pub.rkey))
				r = VERBS_DEVICE(verbs_backend.softrdma_key_alias(mr->real, mr->pub.rkey));
	if (r)
		log_error("process %u has more keys that others have, too, than the device takes note of: a new connection that uses one may fail", fermata_member());
}

/* 1; 0: there are none; or -errno. */
static int learn(void)
{
	const void *p;
	size_t len;
	int r = fermata_common_map("names", &p, &len);

	if (r <= 0)
		return r;
	if (len < sizeof(struct names) || memcmp(p, NAMES_MAGIC, sizeof(NAMES_MAGIC)) != 0 || ((const struct names *)p)->size != len) {
		log_error("the names that the job's processes were told before its restart are those of another version of fermata");
		return -EPROTO;
	}
	set_out(p);
	verbs_self = fermata_member();
	keys_alias();
	r = verbs_cm_hosts_learn();
	return r ? r : 1;
}

int verbs_fabric_learn(void)
{
	int r = learn();

	return r < 0 ? fermata_fail(r, "process %u cannot learn the names of the fabric (errno %d)", fermata_pid(), -r) : 0;
}

int verbs_fabric_learn_kept(void)
{
	int r;

	if (verbs_moved)
		return 0;
	r = learn();
	verbs_moved = r > 0;
	return r < 0 ? r : 0;
}
