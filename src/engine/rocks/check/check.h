/* Internals of the offline checker (rocks_check), shared by its files.
 *
 * The checker walks over all families side by side; all are ordered by P, so it sees a key's metadata
 * together with all its rows and compares them on the way. It keeps only sums: to find out whether two
 * families have the same pairs, it compares the sums of the pairs' hashes, and looks pairs up one by one only
 * where these differ. */
#ifndef MAYFLY_ENGINE_ROCKS_CHECK_CHECK_H
#define MAYFLY_ENGINE_ROCKS_CHECK_CHECK_H

#include "engine/rocks/codec.h"
#include "engine/rocks/due/due_row.h"
#include "engine/rocks/slots.h"
#include "engine/rocks/store/store.h"
#include "engine/rocks/due/due_counts.h"

#define LLU(x) ((unsigned long long)(x)) /* for printf */
#define LLD(x) ((long long)(x))

enum { CHECK_LANES = FAM_COMPANION + 1 }; /* families in the order of P: FAM_META … FAM_COMPANION */

#define CHECK_PREFIX 1 /* of the keys of all regions */

/* What was counted of a database, and what meta_info says of it: by slot. */
struct check_db {
    u64 index;
    struct slot_counts *found, *stored;
    u64 *stamps; /* of the stored counts: the highest is valid */
    bool has_row; /* 'c'; without it the counts are left over from a staging database */
};

/* A region, as meta_info has it. */
struct check_region {
    struct rocks_region r;
    u64 stamp; /* of the newest row with its state that was read */
    i64 clock_ms;
    struct due_position position;
    struct buf position_row; /* what `position` points into */
};

struct check_index {
    u32 number;
    u64 index;
};

struct check {
    struct store *store;
    struct store_session *session;
    bool failed;      /* a read has just failed: store.h */
    bool damaged;     /* some reads failed: counts are meaningless */
    bool due_damaged; /* … of the deadline index */
    struct store_iter *lane[CHECK_LANES];

    /* meta_info */
    bool made_here;             /* it has Mayfly's state; otherwise nothing is counted or filed yet */
    bool legacy;                /* there may be legacy strings … */
    struct buf legacy_position; /* … from here on */
    u64 applied, last_version;
    i64 clock_ms;
    struct buf regions;         /* of struct check_region */
    struct buf indexes;         /* of struct check_index: databases that were swapped */
    struct buf dbs;             /* of struct check_db */
    struct due_counts buckets;  /* stored counts minus those found */

    u64 keys[TYPE_STREAM + 1], elements[TYPE_STREAM + 1]; /* by type */
    u64 legacy_strings, staging_keys;
    u64 with_deadline, dead, field_deadlines;
    u64 companions, companion_rows;
    struct check_marks {
        u64 n, sum; /* of hashes of P */
    } kept, marks;  /* companions that outlive their keys; the rows 'k' that mark them */
    u64 due_rows, due_used; /* rows of the deadline index; those that keys and hashes need */
    u64 log_regions, log_entries; /* of the Raft log */
    u64 emptied;            /* dead keys whose values compactions have dropped */
    u64 orphans[CHECK_LANES], rows;
    u64 problems;
};

/* A key as its rows pass by. */
struct check_key {
    struct buf p; /* its P */
    u64 index;
    u16 slot;
    bytes key;
    bool told_version; /* reported that a version is too new */
    bool stub;  /* it is dead, and compactions have dropped its value */
    bool found; /* it has metadata, which is: */
    struct codec_meta m;
};

/* Reports a problem with a key, or (NULL) with the database as a whole. */
void check_problem(struct check *c, const struct check_key *k, const char *fmt, ...) PRINTF_LIKE(3, 4);
void check_quote(struct buf *out, bytes name); /* appends "name", escaped, and only its start if long */
const char *check_family(enum family f); /* the name of a lane's family */
/* True if the index is that of a numbered database; false: of a staging one (rk.h). */
bool check_number(const struct check *c, u64 index, u32 *number);
#define CHECK_DB_TEXT 16
/* Its number as text, or "(staging)". */
const char *check_database(const struct check *c, u64 index, char text[CHECK_DB_TEXT]);

/* -- check.c: lanes ------------------------------------------------------------------------- */

/* Whether the lane stands on a row of this key; its part after P. */
bool check_row(struct check *c, const struct check_key *k, enum family f, bytes *rest);
void check_next(struct check *c, enum family f);

/* -- check_key.c -------------------------------------------------------------------------------- */

/* Reads all rows of the key from all lanes, and checks them. */
void check_key(struct check *c, struct check_key *k);

/* -- check_pairs.c ------------------------------------------------------------------------------- */

/* Pairs of a name and a number, of which two families hold one copy each. */
struct check_pairs {
    u64 n, sum;
};

static inline void check_add_pair(struct check_pairs *s, bytes name, u64 number)
{
    s->n++;
    s->sum += hash_bytes(name, number);
}

struct pair_kind {
    enum family named;        /* name → number; FAM_SCORE has number · name → nothing */
    const char *name, *other; /* for messages */
    bool number_is_score;
};
extern const struct pair_kind check_members, check_fields;

/* Reports differences between the two copies. */
void check_same_pairs(struct check *c, const struct check_key *k, const struct pair_kind *kind,
                      const struct check_pairs *named, const struct check_pairs *ordered);
/* Reports a problem with one pair. */
void check_tell_pair(struct check *c, const struct check_key *k, const struct pair_kind *kind, bytes name,
                     u64 number, const char *what);
/* The bounds of the rows of a key's present version; appended. */
void check_own_range(const struct check_key *k, struct buf *prefix, struct buf *after);

/* -- check_state.c ------------------------------------------------------------------------------- */

bool check_layout(struct check *c); /* false: it has another layout, which is reported */
void check_read_state(struct check *c);
void check_release_state(struct check *c);
void check_count_key(struct check *c, const struct check_key *k); /* and its place in the deadline index */
void check_fields_filed(struct check *c, const struct check_key *k, i64 nearest_ms);
void check_due_rows(struct check *c);
void check_counts(struct check *c); /* after the walk */

/* -- check_companion.c ---------------------------------------------------------------------------- */

void check_companion(struct check *c, struct check_key *k); /* after the key's own rows */
void check_add_mark(struct check_marks *m, bytes p);
void check_kept(struct check *c); /* after the walk */

/* -- check_raft_log.c ----------------------------------------------------------------------------- */

void check_raft_log(struct check *c);

#endif
