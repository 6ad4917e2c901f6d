#include "exec/permit.h"

enum acl_denial permit_check(struct node *n, const struct request *q, const struct command *cmd,
                             enum acl_context where)
{
    int at;
    if (LIKELY(!acl_restricts(q->session))) return ACL_ALLOWED;
    enum acl_denial denial = acl_check(q->session->user, cmd, q->argc, q->argv, &at);
    if (denial && n->on_denied)
        n->on_denied(n->owner, q, denial, where, at ? q->argv[at] : bytes_str(cmd->name));
    return denial;
}

void permit_print(struct buf *text, const struct request *q, const struct command *cmd,
                  enum acl_denial denial)
{
    const struct buf *user = &q->session->user->name;
    if (denial == ACL_NO_KEY) buf_append_str(text, "No permissions to access a key");
    else if (denial == ACL_NO_CHANNEL) buf_append_str(text, "No permissions to access a channel");
    else
        buf_printf(text, "User %.*s has no permissions to run the '%s' command", (int)user->n, user->p,
                   cmd->name);
}

bool permit_request(struct node *n, const struct request *q, const struct command *cmd,
                    enum acl_context where)
{
    enum acl_denial denial = permit_check(n, q, cmd, where);
    struct buf text = {0};
    if (LIKELY(denial == ACL_ALLOWED)) return true;
    permit_print(&text, q, cmd, denial);
    reply_errorf(q->out, "NOPERM %.*s", (int)text.n, text.p);
    buf_release(&text);
    return false;
}
