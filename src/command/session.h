/* What a command may know of the client that sent it. The connection (net)
 * embeds one; the journal's appliers and scripts have their own. */
#ifndef MAYFLY_COMMAND_SESSION_H
#define MAYFLY_COMMAND_SESSION_H

#include "base/buf.h"

enum session_reply { REPLY_ON, REPLY_OFF, REPLY_SKIP_NEXT, REPLY_SKIPPING };

struct session {
    u64 id;
    u32 db;
    u8 proto;            /* 2 or 3 */
    bool authenticated;
    bool auth_waited;    /* its AUTH has been held back once: the next try may run */
    bool no_touch, no_evict;
    bool close_after_reply;
    bool monitor;
    enum session_reply reply_mode;
    struct buf name, lib_name, lib_ver;
};

void session_init(struct session *s, u64 id, bool authenticated);
void session_release(struct session *s);

#endif
