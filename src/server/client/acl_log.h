/* ACL LOG: denied attempts of users. Repetitions within a minute are one entry with a count. */
#ifndef MAYFLY_SERVER_CLIENT_ACL_LOG_H
#define MAYFLY_SERVER_CLIENT_ACL_LOG_H

#include "exec/acl.h"

struct acl_entry {
    u64 count;
    enum acl_denial denial;
    enum acl_context where;
    struct buf what, user, client;
    u64 id;
    i64 created_ms, time_ms; /* the first time, and the last */
    struct acl_entry *older, *newer;
};

struct acl_log {
    struct acl_entry *newest, *oldest;
    u64 count;
    u64 next_id;
    u64 denied[ACL_NO_CHANNEL + 1]; /* by what was denied */
};

/* Takes the text in `client` over. */
void acl_log_add(struct acl_log *l, u64 max_len, i64 now_ms, enum acl_denial denial, enum acl_context where,
                 bytes what, bytes user, struct buf client);
void acl_log_trim(struct acl_log *l, u64 max_len);

#endif
