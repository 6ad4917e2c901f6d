#include "exec/permit.h"

enum acl_denial permit_check(struct region *r, const struct request *q, const struct command *cmd,
                             enum acl_context where)
{
    int at;
    if (LIKELY(!acl_restricts(q->session))) return ACL_ALLOWED;
    enum acl_denial denial = acl_check(q->session->user, cmd, q->argc, q->argv, &at);
    if (denial && r->on_denied)
        r->on_denied(r->owner, q, denial, where, at ? q->argv[at] : bytes_str(cmd->name));
    return denial;
}

#define NO_ACCESS "NOPERM this user has no permissions to access one of the "

bool permit_request(struct region *r, const struct request *q, const struct command *cmd,
                    enum acl_context where)
{
    switch (permit_check(r, q, cmd, where)) {
    case ACL_ALLOWED: return true;
    case ACL_NO_KEY:
        reply_error(q->out, NO_ACCESS "keys used as arguments");
        return false;
    case ACL_NO_CHANNEL:
        reply_error(q->out, NO_ACCESS "channels used as arguments");
        return false;
    default:
        reply_errorf(q->out, "NOPERM this user has no permissions to run the '%s' command", cmd->name);
        return false;
    }
}
