/* SPDX-License-Identifier: BSD-2-Clause */
/* Names of the fabric: verbs_fabric.c. Used only when verbs_moved. */
#pragma once

#include "plugins/verbs/verbs_draws.h"
#include "plugins/verbs/verbs_shadow.h"

uint32_t verbs_lkey_real(const struct shadow_context *c, uint32_t key);
/* @peer: whose key it is; where that is not known (member 0), a key of that device, if that is (not 0). */
uint32_t verbs_rkey_real(struct verbs_owner peer, uint64_t device, uint32_t key);
/* Whether a key, a number that the device gives now is one of before, for who is told it. */
int verbs_key_is_ambiguous(uint32_t rkey); /* several owners had it */
enum name_known verbs_key_known(const struct shadow_context *c, uint32_t lkey, uint32_t rkey);
enum name_known verbs_qpn_known(const struct shadow_device *d, uint32_t qpn);
enum name_known verbs_window_known(const struct shadow_context *c, uint32_t rkey);
void verbs_key_remove(const struct shadow_context *c, uint32_t lkey);
/*
 * Turns the address and number that the program named into those of this life, and cuts packets to what the other port takes. A number that nobody has published is the
 * device's own, of a queue pair made after the restart; but @old: of one that is gone, which must find nobody.
 */
void verbs_peer_real(struct shadow_qp *qp, struct ibv_qp_attr *attr, int mask, int old);
/* @member: whose queue pair it leads to, for a name that is several ports now; 0: not known. */
void verbs_ah_real(const struct verbs_port *own, struct ibv_ah_attr *ah, uint32_t member);
/* The port of this life that process @member has under that name; 0: nobody has. */
uint64_t verbs_home(uint64_t address, uint32_t member);
/* Of the ports that have that name now, but for the first: for each a process that has it. How many, or -E2BIG. */
int verbs_homes(uint64_t address, uint32_t *members, unsigned int room);

/* ---- verbs_gid.c ---- */
/* Kind of a GID: InfiniBand, RoCE v1 or v2, and whether it is of its link alone, an IPv4 address or another one; never 0. */
uint8_t verbs_gid_kind(const union ibv_gid *gid, uint32_t type);
/* enum ibv_gid_type of one that the program has. */
uint32_t verbs_gid_type(const struct verbs_port *own, unsigned int index);
int verbs_gid_is_v2(const struct verbs_port *own, unsigned int index);
/* The kinds of a table have changed. */
void verbs_gid_places(struct verbs_port *own);
/* Where the GID is in this life that the program has at @index; 0 if it has no such one. */
unsigned int verbs_gid_index_real(const struct verbs_port *own, unsigned int index);
/* The other way round. Of several places that lead there, the one of GID @as, or else that which leads furthest. */
unsigned int verbs_gid_index_virtual(const struct verbs_port *own, unsigned int index, const union ibv_gid *as);
/* Of two GIDs of one port, which leads further: IPv4, IPv6, of the link. */
unsigned int verbs_gid_reach(const union ibv_gid *gid);
/* Where the program has that GID in its table, as one of RoCE v2 or not, if there are both; -1: nowhere. */
int verbs_gid_index_of(const struct verbs_port *own, const union ibv_gid *gid, int v2);

/* ---- verbs_fabric.c, verbs_fabric_numbers.c ---- */
/* The device, as port_name.device says it; 0: nobody has told others of it. */
uint64_t verbs_device_now(const struct shadow_device *d);
const struct verbs_port *verbs_port_at(struct ibv_context *context, unsigned int number);
void verbs_gid_real(union ibv_gid *gid);
/* The number of the queue pair that the program knows as @qpn at that address, and back; unknown ones stay. */
uint32_t verbs_qpn_real(uint32_t qpn, uint64_t address, uint32_t *ret_member); /* *ret_member: whose it is, if that is known */
int verbs_qpn_find(uint32_t qpn, uint64_t address, uint32_t *ret_real); /* 1: it has been published */
/* The same of shared receive queues of extended connections; *ret_owner: whose it is, if that is known. */
uint32_t verbs_srqn_real(uint32_t number, uint64_t address, struct verbs_owner *ret_owner);
enum name_known verbs_srqn_known(const struct shadow_device *d, uint32_t number);
uint32_t verbs_qpn_virtual(uint32_t qpn, uint64_t address);
/* Takes out of a LID of this life the bits that tell the path; those that the program may know. */
uint16_t verbs_path_take(const struct verbs_port *own, uint16_t *lid);
extern int verbs_is_tied HIDDEN; /* verbs_told_by_chance: since this life or one before */
uint16_t verbs_lid_virtual(const union ibv_gid *in_subnet, uint16_t lid); /* @in_subnet: any GID of it, of this life */
/*
 * Who sent a datagram, in the names that the program knows; @gid: of its route header, or NULL. Hosts of before may be one now: their ports have the same
 * names then, and the number alone tells which it was.
 */
void verbs_sender_virtual(const struct verbs_port *own, uint32_t *number, uint16_t *lid, union ibv_gid *gid);
void verbs_gid_virtual(union ibv_gid *gid);
/* One GID may be what several of the program's mean now: @as is which, or else the one of that port that leads furthest. */
void verbs_gid_virtual_as(union ibv_gid *gid, const union ibv_gid *as);
/* The port of process @pid, on the host whose it is, in the names that the program knows; @gid: as it is known now, @as: as above. 0: there is none, or @pid is 0. */
int verbs_peer_virtual(uint32_t pid, uint16_t *ret_lid, union ibv_gid *gid, const union ibv_gid *as);
/*
 * The program is told the name of a port of this life, @lid or else @gid, of which nobody knows more: if ports of several hosts have become that one, it may be another one's name. That is
 * as good in this life; but from then on the process comes back only where those hosts are together, and verbs_reconnect refuses it elsewhere.
 */
void verbs_told_by_chance(const union ibv_gid *in_subnet, uint16_t lid, const union ibv_gid *gid);
/* verbs_fabric_taken.c: of a port that has no name yet, what it is called; and which is meant by a name that nobody has. */
uint16_t verbs_lid_named(const union ibv_gid *in_subnet, uint16_t lid);
uint16_t verbs_lid_meant(const union ibv_gid *in_subnet, uint16_t lid);
void verbs_gid_named(union ibv_gid *gid);
void verbs_gid_meant(union ibv_gid *gid);
/* 0: the address of nobody. */
uint64_t verbs_gid_address(const union ibv_gid *gid);
#define VERBS_NOBODY 0xfffffeu /* a queue pair number that no device gives */
uint64_t verbs_lid_address(const union ibv_gid *in_subnet, uint16_t lid);
/* The address by which a peer is known: its LID and subnet (that of @own port), or a hash of its GID where LIDs are not used. */
uint64_t verbs_address(const struct verbs_port *own, const struct ibv_ah_attr *ah);
uint64_t verbs_qp_address(const struct shadow_qp *qp); /* of its peer */
uint64_t verbs_ah_address(const struct shadow_ah *ah);
/* Ditto, of our own port; 0: the port has no such GID. */
uint64_t verbs_port_address(const struct verbs_port *p, unsigned int gid_index);
/* The first of these: what the port itself is known by. */
uint64_t verbs_port_first(const struct verbs_port *p);
const struct verbs_port *verbs_qp_port(const struct shadow_qp *qp);
int verbs_fabric_publish(void); /* restart, RECREATE: this process's names */
void verbs_fabric_forget(void); /* restart: those of the life before lie in memory that is gone */
int verbs_fabric_learn(void);	/* restart, RECONNECT: everybody's */
/* Of a program that is begun after a restart, with its device's library: everybody's of that restart. 0 or -errno. */
int verbs_fabric_learn_kept(void);
