/* Sending a region's snapshot to a member that is new, or too far behind for the log.
 *
 * The sender streams its data of one moment as an RDB file, on a connection of its own, while it serves
 * (persist/saver.h). The receiver writes it to a file. When that is complete and synced, the group decides
 * whether to install the snapshot. If so, on a node with one region, the file is loaded beside the existing
 * data, and replaces it in one transaction that also stores its raft_applied (loading_sync in
 * server/save/loading.h). On a node with several, cluster_install.c replaces the data. After a crash the
 * member has either the old data or the new.
 *
 * Data is read and sent in short slices, evenly as cluster-snapshot-rate-limit says, since requests need the
 * same loops and disks. A node sends one snapshot and receives one at a time, and may install others
 * (INSTALLS_MAX). More are refused, and Raft retries. */
#ifndef MAYFLY_CLUSTER_SNAPSHOT_H
#define MAYFLY_CLUSTER_SNAPSHOT_H

#include "cluster/cluster.h"

/* See struct raft_machine_ops. */
void snapshot_send(struct member *m, u64 to, const struct raft_applied *at, bytes message);
void snapshot_install(struct member *m, u64 index, u64 term);
void snapshot_discard(struct member *m);

/* For a connection on which one is received. */
const struct bus_conn_ops *snapshot_accept(struct cluster *c, void **user, const char **why);

/* The path of a received snapshot's file, whose name begins with SNAPSHOT_FILE. */
#define SNAPSHOT_FILE "raft-snapshot-"
void snapshot_path(const struct member *m, char path[4200], const char *ending);
void snapshot_installed(struct member *m, const struct raft_applied *at); /* cluster_install.c is done */
bool snapshot_is_sent(const struct member *m); /* one of this region is being sent */
void snapshot_give_up(struct member *m); /* stops sending, if it is this region's snapshot */
void snapshot_forget(struct member *m);  /* drops the received one, if it is this member's */

void snapshot_step(struct cluster *c); /* called periodically: reports failures, continues transfers */
void snapshot_stop(struct cluster *c);
void snapshot_info(struct cluster *c, struct buf *b); /* lines of INFO: counters, transfers in progress */

#endif
