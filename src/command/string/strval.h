/* Shared by commands on string values: strings, bitmaps, HyperLogLogs. */
#ifndef MAYFLY_COMMAND_STRING_STRVAL_H
#define MAYFLY_COMMAND_STRING_STRVAL_H

#include "command/ctx.h"

/* Creates or replaces a key of any type; `ref` is the result of the lookup. The caller reports events and
 * effects other than `new`. */
static inline void strval_put(struct ctx *c, bytes key, struct key_ref *ref, bytes value,
                              i64 deadline_ms)
{
    bool is_new = ref->entry == NULL;
    c->eng->ops->str.put(c->eng, c->db, key, ref, value, deadline_ms);
    if (is_new) keyspace_notify(c->ks, c->db, key, NOTIFY_NEW, "new");
}

/* The same for a value that stays text even if it is an integer. */
static inline void strval_put_text(struct ctx *c, bytes key, struct key_ref *ref, bytes value,
                                   i64 deadline_ms)
{
    bool is_new = ref->entry == NULL;
    c->eng->ops->str.put_text(c->eng, c->db, key, ref, value, deadline_ms);
    if (is_new) keyspace_notify(c->ks, c->db, key, NOTIFY_NEW, "new");
}

/* The writable bytes of a string of new_len bytes: the old ones, then zeros. An absent key is created. The
 * value stays plain bytes from then on, like Redis's "raw", even if it is a number. */
static inline char *strval_edit(struct ctx *c, bytes key, struct key_ref *ref, size_t new_len)
{
    if (ref->entry == NULL) strval_put(c, key, ref, BYTES_LIT(""), 0);
    return c->eng->ops->str.edit(c->eng, ref, new_len);
}

/* A string's value, or an empty slice for an absent key. */
static inline bytes strval_get(struct ctx *c, struct key_ref *ref, struct str_view *view)
{
    if (ref->entry == NULL) return BYTES_LIT("");
    c->eng->ops->str.get(c->eng, ref, view);
    return view->b;
}

#endif
