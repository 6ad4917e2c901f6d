#include "cluster/message.h"

#include "base/endian.h"

void message_put(char out[MESSAGE_HEAD], const struct message_head *h)
{
    put_le64(out, h->region);
    put_le64(out + 8, h->from);
    put_le64(out + 16, h->to);
}

const char *message_get(bytes body, u64 from, u64 to, struct message_head *h)
{
    if (body.n < MESSAGE_HEAD) return "a message without a head";
    *h = (struct message_head){get_le64(body.p), get_le64(body.p + 8), get_le64(body.p + 16)};
    if (h->to != to) return "a message for another node";
    return h->from != from ? "a message in another node's name" : NULL;
}
