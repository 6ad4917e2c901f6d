/* A key of the site layer: an engine's key and its companion (engine/companion.h), which are loaded, changed
 * and saved.
 *
 * A key is a bag of atoms, each marked by the dot of the effect that made it:
 *   claims     who wrote the key last, and as which type: several only after concurrent writes
 *   deadlines  what EXPIRE, PERSIST and SETs with a TTL said
 *   marks      of expiries: what each had seen
 *   cells      of each type: the string, hash fields, members, elements (cell.h); a field may have deadlines
 *              and marks of its own
 * The winning claim decides the type and the longest deadline counts; that much is in the engine's own
 * row, with the values of that type, so that reads look nowhere else. Everything else is in the
 * companion. A companion stays (keep) when there is something in it that garbage collection has to
 * remove (gc.c).
 *
 * The head of the companion:
 *     flags [· claims] [· deadlines] [· marks] [· counts] [· the string's cell]      key_code.c
 * A row for each other cell: type · path → the cell (cell.c). A string that is as its claim says needs no
 * cell. A head that is too long for a head is a row of its own, without a name. */
#ifndef MAYFLY_SITE_KEY_H
#define MAYFLY_SITE_KEY_H

#include "engine/engine.h"
#include "site/cell.h"

struct site_claim {
    struct site_dot dot;
    u64 stamp;
    enum value_type type;
};

struct site_walk;

struct site_key {
    struct engine *e;
    u32 db;
    struct buf name;
    struct key_ref ref;
    enum value_type held; /* whose values the engine holds */
    struct site_claim *claims;
    u32 n_claims, room_claims;
    struct site_ttl ttl;
    struct site_cell string; /* the string's cell; those of other types are loaded one at a time */
    struct {
        u64 rows, live;  /* cells with a row; those that keep the key alive */
    } cells[SITE_TYPES]; /* without the string's, which has no row */
    u64 untidy;          /* of these cells: with something for garbage collection */
    u64 counting;        /* … and with counters */
    u64 timed;           /* … and fields with deadlines, or marks of their expiries */
    u64 last;            /* the site's position at the last change, if the key is untidy (site.h) */
    bool restate;        /* the last id of the stream that shows may have to be set */
    u64 walked;          /* a walk over the list has come to this element (1 is the first); 0: no walk */
    bool overflowed;     /* the head was a row */
    struct buf head;     /* as the engine has it; empty: not known */
    struct buf scratch;  /* for what is being encoded */
    struct site_walk *const *walks; /* get keys before they change (walk.h); NULL: it only reads */
};

/* A zeroed key is none; load() may be called again, and then reuses its memory. */
void site_key_load(struct site_key *k, struct engine *e, u32 db, bytes name);
/* The same for a key that was found: `ref` is as from find(), also if that returned false. */
void site_key_attach(struct site_key *k, struct engine *e, const struct key_ref *ref);
/* Writes the changes to the engine: type, deadline, string, companion. `position` is stored as `last` if
 * touched. */
void site_key_save(struct site_key *k, u64 position);
/* Saves only the companion: the engine's value and deadline are up to date, or about to be deleted. */
void site_key_save_companion(struct site_key *k, u64 position);
void site_key_release(struct site_key *k);

/* What shows. NULL: nothing. */
const struct site_claim *site_key_claim(const struct site_key *k);
enum value_type site_key_type(const struct site_key *k);
const struct site_deadline *site_key_ttl(const struct site_key *k); /* the one that decides */
i64 site_key_deadline(const struct site_key *k);                    /* 0: none */
struct site_dot site_key_birth(const struct site_key *k);           /* of the string that shows */
bool site_key_empty(const struct site_key *k);
bool site_key_tidy(const struct site_key *k); /* nothing for garbage collection */

void site_key_add_claim(struct site_key *k, struct site_claim c);

/* The claim says it all about the string: the same effect wrote it, and there was nothing else. */
bool site_key_plain_string(const struct site_key *k);

/* Cells. cell() gives an empty one if there is none. A string's is the key's own: `scratch` is for others. */
struct site_cell *site_key_cell(struct site_key *k, enum value_type kind, bytes path,
                                struct site_cell *scratch);
void site_key_store(struct site_key *k, struct site_cell *c); /* after it was changed */
void site_key_drop_cells(struct site_key *k);                 /* all of them, of all types, in O(1) */
void site_key_drop_rows(struct site_key *k); /* the same; the engine's values are left to the caller */
/* Appends the value of a cell to `out`, as it shows or would show. False: it has none. */
bool site_key_value(struct site_key *k, struct site_cell *c, struct buf *out);
/* Reads all values of a cell, also the one that is only in the engine. */
void site_key_read(struct site_key *k, struct site_cell *c);
/* Paths of all cells of a type that have a row, each as bytes with a length (site_get_bytes). */
void site_key_paths(struct site_key *k, enum value_type kind, struct buf *out);

/* The companion's head (key_code.c). */
void site_key_encode(const struct site_key *k, struct buf *to);
void site_key_decode(struct site_key *k, bytes head);
/* The head of a key in the usual case, for writes that need not know the rest of it: one claim, of the type
 * that the engine holds; no deadline, or the engine's, which the last write may have carried along; no
 * marks, and no fields with deadlines. */
struct site_head {
    struct site_dot dot; /* of the claim */
    u64 stamp;
    struct site_dot ttl, ttl_birth; /* of the deadline; no dot: none */
    bool keeps;                     /* the last write carried it along … */
    i64 at_ms;                      /* … as this time, … */
    struct site_dot birth;          /* … with this birth */
    enum { SITE_STRING_NONE, SITE_STRING_SET, SITE_STRING_CELL } string; /* SET: as its claim says */
    bytes cell;   /* of the string */
    bool stored;  /* for writers: the companion has it like this, but perhaps for the counts */
    bool counted; /* these are known; otherwise all that is in the key are elements, each written once: */
    u64 untidy, counting;
    struct {
        u64 rows, live;
    } cells[SITE_TYPES];
};
bool site_get_head(bytes raw, struct site_head *h);                       /* false: it is none of these */
void site_put_head(struct buf *to, const struct site_head *h, u64 last);
/* All there is are elements of this type, each written once, without increments. */
bool site_head_is_plain(const struct site_head *h, enum value_type kind);
/* That of a string as a SET made it, perhaps with a deadline. */
#define SITE_SET_HEAD_MAX 24
bool site_head_is_set(bytes head, struct site_dot *dot);
bytes site_set_head(char raw[SITE_SET_HEAD_MAX], struct site_dot dot, u64 stamp, bool deadline);

/* Values of the type that the engine holds (show.c). */
/* The path of the first or last element of a list; false: there is none. */
bool site_list_end(struct engine *e, struct key_ref *ref, bool front, struct buf *path);
/* Of streams, Redis's defaults: sizes of nodes matter to XTRIM ~ only. */
#define SITE_NODE_LIMITS ((struct xnode_limits){.bytes = 4096, .entries = 100})
void site_show_last_id(struct site_key *k); /* of a stream, as its entries and its cell say */
bool site_show_get(struct site_key *k, const struct site_cell *c, struct buf *out);
void site_show_put(struct site_key *k, const struct site_cell *c, bytes value);
void site_show_deadline(struct site_key *k, const struct site_cell *c); /* of a hash field */
void site_show_del(struct site_key *k, const struct site_cell *c);

#endif
