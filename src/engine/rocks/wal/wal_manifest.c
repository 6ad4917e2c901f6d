/* A MANIFEST is a file in the log format (wal_reader.h) whose records are edits. An edit is a list of
 * fields, each after its tag, in RocksDB's varints. We need few of them, but have to know the lengths of
 * all.
 *
 * A log is needed if it is not older than both the number recorded for the whole database and the
 * lowest one recorded for a column family. Edits of an atomic group count when all of them are there. */
#include "engine/rocks/wal/wal_manifest.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/rocks/codec.h"
#include "engine/rocks/wal/wal_reader.h"

#define FAMILIES_MAX 256
#define RECORD_MAX ((size_t)1 << 30)

/* Tags, and what follows each: v a varint, s a string (its size as a varint, its bytes), f fields of a
 * new table, each a varint and a string, up to a 1; b the same of a blob file, up to a 0; w of a log,
 * varints in pairs, up to a 1. */
enum {
    TAG_LOG_NUMBER = 2,
    TAG_LAST_SEQUENCE = 4,
    TAG_MIN_LOG = 10,
    TAG_TABLE_2 = 100, /* three versions; each ends with the lowest and highest sequence number */
    TAG_TABLE_3 = 102,
    TAG_TABLE_4 = 103,
    TAG_FAMILY = 200,
    TAG_FAMILY_ADD = 201,
    TAG_FAMILY_DROP = 202,
    TAG_ATOMIC_GROUP = 300,
    TAG_IGNORABLE = 1 << 13, /* with this bit: s, unless listed */
    FIELD_MIN_LOG = 3,       /* of a new table */
};

static const struct {
    u32 tag;
    const char *fields;
} layouts[] = {
    {1, "s"},
    {TAG_LOG_NUMBER, "v"},
    {3, "v"},
    {TAG_LAST_SEQUENCE, "v"},
    {5, "vs"},
    {6, "vv"},
    {7, "vvvss"},
    {9, "v"},
    {TAG_MIN_LOG, "v"},
    {TAG_TABLE_2, "vvvssvv"},
    {TAG_TABLE_3, "vvvvssvv"},
    {TAG_TABLE_4, "vvvssvvf"},
    {TAG_FAMILY, "v"},
    {TAG_FAMILY_ADD, "s"},
    {TAG_FAMILY_DROP, ""},
    {203, "v"},
    {TAG_ATOMIC_GROUP, "v"},
    {400, "vvvssb"},
    {401, "vvvb"},
    {TAG_IGNORABLE + 2, "vvvssb"},
    {TAG_IGNORABLE + 3, "vvvb"},
    {TAG_IGNORABLE + 4, "vw"},
    {TAG_IGNORABLE + 5, "v"},
};

static const char *layout_of(u64 tag)
{
    for (size_t i = 0; i < ARRAY_LEN(layouts); i++)
        if (layouts[i].tag == tag) return layouts[i].fields;
    return tag & TAG_IGNORABLE ? "s" : NULL;
}

/* -- an edit ------------------------------------------------------------------------------------- */

struct edit {
    u64 log, min_log, last_sequence, in_tables, family; /* 0: not in it */
    u64 left_in_group;
    bool in_group, adds, drops;
};

static bool manifest_take_string(bytes *in, bytes *out)
{
    u64 n;
    if (!codec_take_varint(in, &n) || n > in->n) return false;
    *out = bytes_of(in->p, (size_t)n);
    *in = bytes_of(in->p + n, in->n - (size_t)n);
    return true;
}

/* Fields of a table or a blob file, up to the tag `last`. */
static bool manifest_take_fields(bytes *in, u64 last, struct edit *e)
{
    u64 tag;
    bytes value;
    while (codec_take_varint(in, &tag)) {
        if (tag == last) return true;
        if (!manifest_take_string(in, &value)) return false;
        bool min_log = last == 1 && tag == FIELD_MIN_LOG && value.n == 8;
        if (min_log) memcpy(&e->min_log, value.p, 8); /* little-endian */
    }
    return false;
}

static bool manifest_take_pairs(bytes *in)
{
    u64 tag, value;
    while (codec_take_varint(in, &tag))
        if (tag == 1) return true;
        else if (!codec_take_varint(in, &value)) return false;
    return false;
}

/* Reads what follows a tag; `number` is the last number of that. */
static bool manifest_take_layout(bytes *in, const char *layout, u64 *number, struct edit *e)
{
    for (; *layout; layout++) {
        bytes text;
        bool ok = *layout == 'v'   ? codec_take_varint(in, number)
                  : *layout == 's' ? manifest_take_string(in, &text)
                  : *layout == 'f' ? manifest_take_fields(in, 1, e)
                  : *layout == 'b' ? manifest_take_fields(in, 0, e)
                                   : manifest_take_pairs(in);
        if (!ok) return false;
    }
    return true;
}

static bool edit_read(bytes in, struct edit *e)
{
    u64 tag, number = 0;
    *e = (struct edit){0};
    while (in.n > 0) {
        const char *layout;
        if (!codec_take_varint(&in, &tag) || !(layout = layout_of(tag))) return false;
        if (!manifest_take_layout(&in, layout, &number, e)) return false;
        switch (tag) {
        case TAG_LOG_NUMBER: e->log = number; break;
        case TAG_MIN_LOG: e->min_log = number; break;
        case TAG_LAST_SEQUENCE: e->last_sequence = number; break;
        case TAG_TABLE_2:
        case TAG_TABLE_3:
        case TAG_TABLE_4: e->in_tables = MAX(e->in_tables, number); break;
        case TAG_FAMILY: e->family = number; break;
        case TAG_FAMILY_ADD: e->adds = true; break;
        case TAG_FAMILY_DROP: e->drops = true; break;
        case TAG_ATOMIC_GROUP: e->in_group = true; e->left_in_group = number; break;
        default: break;
        }
    }
    return true;
}

/* -- all of them ----------------------------------------------------------------------------------- */

struct state {
    u64 min_log, last_sequence, in_tables;
    u64 log[FAMILIES_MAX];
    bool there[FAMILIES_MAX];
};

static bool manifest_apply(struct state *s, const struct edit *e)
{
    if (e->family >= FAMILIES_MAX) return false;
    if (e->adds) s->there[e->family] = true;
    if (e->drops) s->there[e->family] = false;
    s->log[e->family] = MAX(s->log[e->family], e->log);
    s->min_log = MAX(s->min_log, e->min_log);
    s->last_sequence = MAX(s->last_sequence, e->last_sequence);
    s->in_tables = MAX(s->in_tables, e->in_tables);
    return true;
}

static u64 first_log(const struct state *s)
{
    u64 lowest = UINT64_MAX;
    for (u32 i = 0; i < FAMILIES_MAX; i++)
        if (s->there[i]) lowest = MIN(lowest, s->log[i]);
    return MAX(s->min_log, lowest);
}

/* What a log holds is not flushed before the next one is begun, which the family's edit then names. */
static u64 flushed_log(const struct state *s)
{
    u64 highest = 0;
    for (u32 i = 0; i < FAMILIES_MAX; i++) highest = MAX(highest, s->log[i]);
    return highest;
}

/* What an interrupted write leaves: each edit is synced before the next one is written. RocksDB ignores
 * it. */
static bool torn_end(struct wal_reader *r)
{
    return (wal_reader_torn(r) || wal_reader_at_hole(r)) && !wal_reader_sound_behind(r);
}

static bool read_edits(struct wal_reader *r, struct state *s, bool *damaged)
{
    struct edit e;
    struct state group = *s; /* with the edits of a group that is not complete yet */
    enum wal_found found;
    while ((found = wal_reader_next(r)) == WAL_RECORD) {
        if (!edit_read(buf_bytes(&r->record), &e) || !manifest_apply(&group, &e)) return false;
        if (!e.in_group || e.left_in_group == 0) *s = group;
    }
    *damaged = found == WAL_BAD && !torn_end(r);
    return found != WAL_FAILED && !*damaged;
}

u64 wal_manifest_current(const char *dir)
{
    char path[4200], name[64] = "";
    unsigned long long number;
    snprintf(path, sizeof path, "%s/CURRENT", dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool read_it = fd >= 0 && read(fd, name, sizeof name - 1) > 0;
    if (fd >= 0) close(fd);
    return read_it && sscanf(name, "MANIFEST-%llu\n", &number) == 1 ? number : 0;
}

bool wal_manifest_read(const char *dir, struct wal_manifest *out)
{
    char path[4200];
    struct wal_reader r;
    struct state s = {.there[0] = true};
    u64 number = wal_manifest_current(dir);
    snprintf(path, sizeof path, "%s/MANIFEST-%06llu", dir, (unsigned long long)number);
    *out = (struct wal_manifest){.number = number};
    if (!number || !wal_reader_open(&r, path, 0, RECORD_MAX)) return false;
    bool ok = read_edits(&r, &s, &out->damaged);
    wal_reader_close(&r);
    out->offset = r.offset;
    out->first_log = first_log(&s);
    out->flushed_log = flushed_log(&s);
    out->in_tables = s.in_tables;
    out->last_sequence = s.last_sequence;
    return ok;
}
