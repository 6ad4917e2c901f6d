#include "command/session.h"

void session_init(struct session *s, u64 id, bool authenticated)
{
    *s = (struct session){.id = id, .proto = 2, .authenticated = authenticated};
}

void session_release(struct session *s)
{
    buf_release(&s->name);
    buf_release(&s->lib_name);
    buf_release(&s->lib_ver);
}
