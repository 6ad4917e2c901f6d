/* What a command may know of the client that sent it. The connection (net)
 * embeds one; the journal's appliers and scripts have their own. */
#ifndef MAYFLY_COMMAND_SESSION_H
#define MAYFLY_COMMAND_SESSION_H

#include "base/buf.h"

enum session_reply { REPLY_ON, REPLY_OFF, REPLY_SKIP_NEXT, REPLY_SKIPPING };

struct acl_user; /* src/exec/acl.h */

struct session {
    u64 id;
    struct acl_user *user; /* the user it runs as; NULL: not a client, everything is allowed */
    u32 db;
    u8 proto;            /* 2 or 3 */
    bool authenticated;
    bool auth_waited;    /* its AUTH has been held back once: the next try may run */
    bool no_touch, no_evict;
    bool close_after_reply;
    bool monitor;
    bool readonly;       /* READONLY: it may be answered by a member that does not lead */
    bool subscribed;     /* to channels: in RESP2 it can do little else */
    enum session_reply reply_mode;
    u64 read_wanted; /* the follower read that its next request waits for: cluster/member.h; 0: none … */
    u64 read_region; /* … and of which region it is */
    struct buf name, lib_name, lib_ver;
    struct transaction *tx; /* exec/multi.h: it watches keys, or is within MULTI; NULL: neither */
    size_t queue_bytes;     /* of commands queued by MULTI: counted as query buffer */
};

void session_init(struct session *s, u64 id, bool authenticated);
void session_release(struct session *s);

#endif
