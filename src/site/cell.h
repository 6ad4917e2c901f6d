/* A cell: one register, which is a string, a hash field, a member, a list element or an entry of a stream.
 * It has the values written to it (several only after concurrent writes), and for each site the total of its
 * increments.
 *
 * The cell's value is that of the latest write (by stamp, then the lower gid), plus all increments that no
 * write or removal has seen. If the winning value is not a number, increments are ignored.
 *
 * A stream has two cells that are not entries. The one without a path says that the stream exists: a write
 * that creates a stream writes it. The one with id 0-0 stores the last id if the entries don't show it: the
 * highest of those written concurrently. Entries have no stamps: of two with the same id the lower gid's
 * wins.
 *
 * A cell is stored without its value if that is what the engine shows, and without the values that
 * nobody needs:
 *     count and flags · (dot [· stamp] [· birth] [· value]) … · (gid · hi · lo · total · lo_total) …
 *         [· deadlines] [· marks]                     of a hash field (ttl.h) */
#ifndef MAYFLY_SITE_CELL_H
#define MAYFLY_SITE_CELL_H

#include "engine/handles.h"
#include "site/number.h"
#include "site/ttl.h"

#define SITE_TYPES (TYPE_STREAM + 1)

#define SITE_ID_BYTES 16 /* path of an entry: its id, big-endian */
#define SITE_LAST_ID BYTES_LIT("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")

struct site_write {
    struct site_dot dot;
    u64 stamp;
    struct site_dot birth; /* of strings: the SET that the value descends from */
    bool shown;            /* the value is in the engine, not in `text` */
    size_t at, n;          /* of the value, in `text` */
};

/* Increments of a site. Those with lo < seq <= hi count, as total - lo_total. */
struct site_inc {
    u8 gid;
    u64 hi, lo;
    struct site_num total, lo_total;
};

struct site_cell {
    enum value_type kind;
    struct buf row; /* the name of its row: type · path */
    struct site_write *writes;
    struct site_inc *incs; /* in order of gids */
    u32 n_writes, n_incs, room_writes, room_incs;
    struct site_ttl ttl; /* of a hash field */
    struct buf text;
    bool stored, was_live, was_untidy, was_counting, was_timed; /* as it was loaded; stored: it has a row */
};

/* Whether there can be such a cell, such a value in it, and increments in cells of a type. */
bool site_path_fits(enum value_type kind, bytes path);
bool site_value_fits(enum value_type kind, bytes path, bytes value);
bool site_counts(enum value_type kind);

void site_cell_reset(struct site_cell *c, enum value_type kind, bytes path); /* now empty */
void site_cell_release(struct site_cell *c);
static inline bytes site_cell_path(const struct site_cell *c) { return bytes_of(c->row.p + 1, c->row.n - 1); }

bool site_cell_empty(const struct site_cell *c);
bool site_cell_live(const struct site_cell *c);
bool site_cell_is_last_id(const struct site_cell *c);
static inline bool site_cell_keeps(const struct site_cell *c) /* keeps its key alive */
{
    return site_cell_live(c) && !site_cell_is_last_id(c);
}
bool site_cell_tidy(const struct site_cell *c);
bool site_cell_counts(const struct site_cell *c); /* some increment counts */
struct site_write *site_cell_winner(const struct site_cell *c);
struct site_inc *site_cell_inc(const struct site_cell *c, u8 gid);
static inline bytes site_cell_text(const struct site_cell *c, const struct site_write *w)
{
    return bytes_of(c->text.p + w->at, w->n);
}

/* Removes what `clock` covers, and of increments beyond it those that were seen (effect.h). */
void site_cell_remove(struct site_cell *c, const struct site_clock *clock, bytes seen);
void site_cell_clear(struct site_cell *c, const struct site_clock *clock, bytes seen); /* … deadlines, too */
void site_cell_write(struct site_cell *c, struct site_dot dot, u64 stamp, struct site_dot birth, bytes value);
void site_cell_add_inc(struct site_cell *c, struct site_inc inc); /* replaces that site's */
void site_cell_forget(struct site_cell *c, struct site_dot dot);  /* a write; it may be absent */
void site_cell_collect(struct site_cell *c);                      /* garbage: what does not count */
/* Appends the counters that a removal by a site with this clock must mention, with how far it saw them. */
void site_cell_seen(const struct site_cell *c, const struct site_clock *scope, struct buf *to);
/* Appends the value, given all that was written; false: none. */
bool site_cell_value(const struct site_cell *c, struct buf *out);

void site_cell_encode(const struct site_cell *c, struct buf *to);
bool site_cell_decode(struct site_cell *c, struct site_reader *r); /* false: malformed */

/* Cells of the usual kinds as bytes, for writes that need not know the rest of them. */
#define SITE_PLAIN_CELL_MAX 24
/* The cell of a field, member or element that was written once, and shows. */
bytes site_plain_cell(char raw[SITE_PLAIN_CELL_MAX], enum value_type kind, struct site_dot dot, u64 stamp);
bool site_cell_is_plain(bytes cell, struct site_dot *dot);
struct site_counter {
    bytes before, after; /* what is encoded around … */
    struct site_inc inc; /* … the increments of one site, which count; all totals are integers */
};
/* False: it is none of these. */
bool site_get_counter(bytes cell, enum value_type kind, u8 gid, struct site_counter *out);
void site_put_counter(struct buf *to, const struct site_counter *c);

#endif
