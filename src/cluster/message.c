#include "cluster/message.h"

static void message_put_u64(char *p, u64 v)
{
    for (int i = 0; i < 8; i++) p[i] = (char)(v >> 8 * i);
}

static u64 message_get_u64(const char *p)
{
    u64 v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | (u8)p[i];
    return v;
}

void message_put(char out[MESSAGE_HEAD], const struct message_head *h)
{
    message_put_u64(out, h->region);
    message_put_u64(out + 8, h->from);
    message_put_u64(out + 16, h->to);
}

const char *message_get(bytes body, u64 from, u64 to, struct message_head *h)
{
    if (body.n < MESSAGE_HEAD) return "a message without a head";
    *h = (struct message_head){message_get_u64(body.p), message_get_u64(body.p + 8),
                               message_get_u64(body.p + 16)};
    if (h->to != to) return "a message for another node";
    return h->from != from ? "a message in another node's name" : NULL;
}
