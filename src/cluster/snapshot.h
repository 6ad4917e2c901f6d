/* Snapshots of a region on their way between members: for one that is new, or too far behind for the log.
 *
 * The sender streams the data of one moment as an RDB file, taken while it serves (persist/saver.h), on a
 * connection of its own. The receiver writes it to a file. When that is complete and synced, the group
 * decides whether it wants the snapshot. If so, the file is loaded beside the data that is there, and takes
 * its place in one transaction, together with how far it reaches (loading_sync in server/save/loading.h). A
 * crash leaves the old data or the new.
 *
 * One goes out and one comes in at a time. Others are refused; Raft asks again. */
#ifndef MAYFLY_CLUSTER_SNAPSHOT_H
#define MAYFLY_CLUSTER_SNAPSHOT_H

#include "cluster/cluster.h"

/* See struct raft_machine_ops. */
void snapshot_send(struct member *m, u64 to, const struct raft_applied *at, bytes message);
void snapshot_install(struct member *m, u64 index, u64 term);
void snapshot_discard(struct member *m);

/* A connection that brings one. */
const struct bus_conn_ops *snapshot_accept(struct cluster *c, void **user, const char **why);

/* Where the file of a region's snapshot is. */
void snapshot_path(const struct member *m, char path[4200], const char *ending);
void snapshot_installed(struct member *m, const struct raft_applied *at); /* cluster_install.c is done */
bool snapshot_is_sent(const struct member *m);                            /* one of this region goes out */
void snapshot_give_up(struct member *m); /* the one that goes out, if it is this region's */
void snapshot_forget(struct member *m);  /* the one that comes in, if it is this member's */

void snapshot_step(struct cluster *c); /* now and then: reports failures, feeds what is under way */
void snapshot_stop(struct cluster *c);
void snapshot_info(struct cluster *c, struct buf *b); /* lines of INFO: counters, and what is under way */

#endif
