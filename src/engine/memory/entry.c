#include "engine/memory/entry.h"

struct entry *entry_new(bytes key, enum value_type type, enum entry_form form, bool deadline,
                        size_t value_bytes)
{
    char *p = mem_alloc(mem_room(entry_need(key, deadline, value_bytes)));
    p[0] = (char)(type | form << 3 | (deadline ? ENTRY_DEADLINE : 0));
    memset(p + 1, 0, deadline ? 13 : 3);
    slice_write(p + (deadline ? 14 : 4), key);
    return (struct entry *)p;
}

struct entry *entry_resized(const struct entry *e, enum entry_form form, size_t value_bytes)
{
    size_t before = (size_t)(entry_value(e) - entry_raw(e));
    char *p = mem_alloc(mem_room(before + value_bytes));
    memcpy(p, e, before);
    *p &= ~ENTRY_COMPANION;
    entry_set_form((struct entry *)p, form);
    return (struct entry *)p;
}

struct entry *entry_copy(const struct entry *e, bool prefix)
{
    size_t n = entry_size(e), before = prefix ? ENTRY_PREFIX : 0;
    char *p = mem_alloc(before + n);
    memset(p, 0, before);
    p += before;
    memcpy(p, e, n);
    p[0] = (char)((p[0] & ~ENTRY_COMPANION) | (prefix ? ENTRY_COMPANION : 0));
    return (struct entry *)p;
}
