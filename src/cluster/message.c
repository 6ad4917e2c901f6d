#include "cluster/message.h"

#include "base/endian.h"
#include "cluster/peer_id.h"

void message_put(char out[MESSAGE_HEAD], const struct message_head *h)
{
    put_le64(out, h->region);
    put_le64(out + 8, h->from);
    put_le64(out + 16, h->to);
    put_le64(out + 24, (u64)h->first | (u64)h->last << 16 | (u64)h->has_data << 32);
}

const char *message_get(bytes body, u64 from, u64 to, struct message_head *h)
{
    if (body.n < MESSAGE_HEAD) return "a message without a head";
    u64 slots = get_le64(body.p + 24);
    *h = (struct message_head){
        .region = get_le64(body.p),
        .from = get_le64(body.p + 8),
        .to = get_le64(body.p + 16),
        .first = (u16)slots,
        .last = (u16)(slots >> 16),
        .has_data = slots >> 32 & 1,
    };
    if (node_of(h->to) != to) return "a message for another node";
    return node_of(h->from) != from ? "a message in another node's name" : NULL;
}
