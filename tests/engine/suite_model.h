/* The suite's model of an engine: every value a plain array that is searched
 * from end to end. Strings in it are numbered: text(id) is the string of a number. */
#ifndef MAYFLY_TESTS_ENGINE_SUITE_MODEL_H
#define MAYFLY_TESTS_ENGINE_SUITE_MODEL_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "rounds.h"

#define DBS 3
#define IDS 120     /* different keys per database */
#define START 1700000000000LL
#define NONE UINT32_MAX

struct elem {
    u32 id;          /* field, member or list element */
    u32 value;       /* hashes, rows of streams */
    double score;    /* sorted sets */
    i64 deadline_ms; /* hashes */
    bool seen;       /* by the walk in progress */
};

/* A key. Hashes and sets are in no order, lists in theirs, sorted sets and streams sorted. */
struct mval {
    enum value_type type; /* TYPE_NONE: absent */
    i64 deadline_ms;
    u32 access;
    struct buf str; /* also the head of a stream */
    u64 size;       /* of a stream */
    struct elem *v;
    u32 n, cap;
    bool seen;
};

/* An engine that has fewer than DBS databases is asked for its staging ones, too. */
struct world {
    struct engine *e;
    const struct engine_ops *ops;
    struct mval key[DBS][IDS];
    struct mval companion[DBS][IDS]; /* suite_companion.c */
    bool all_kept_seen;              /* the next check follows a commit: no walk leaves one out */
    i64 now_ms;
    u64 seq;
};

extern u64 suite_rng;
void suite_seed(void); /* SUITE_SEED, for soaking: a failure repeats with its seed */
u32 below(u32 n);

/* Short and long, numbers, binary, and for 0 the empty string. The slice lives
 * for the next fifteen calls, not counting those with another ring. */
bytes text(u32 id);
extern u32 suite_ring; /* 0; 1: somebody calls in the middle of a primitive, whose arguments must stay */
u32 text_id(bytes s);
#define TEXT_MAX 1024               /* bytes */
bytes text_keep(char *to, bytes b); /* a copy: comparing calls text(), too */

void world_open(struct world *w, struct engine *e);
void world_close(struct world *w); /* drops everything, reclaims it, closes the engine */
void world_tick(struct world *w, i64 step_ms); /* commits, and begins so much later */

/* -- the model alone ---------------------------------------------------------- */
void mval_clear(struct mval *m); /* now absent */
void mval_copy(struct mval *to, const struct mval *from, i64 now_ms);
u32 mval_index(const struct mval *m, u32 id); /* NONE if it has no such element */
struct elem *mval_insert(struct mval *m, u32 at, struct elem el);
void mval_erase(struct mval *m, u32 at, u32 n);
bool elem_live(const struct elem *el, i64 now_ms);
u64 mval_size(const struct mval *m, i64 now_ms);
i64 mval_nearest_field(const struct mval *m); /* its deadline; 0 if none has one */
u32 zset_place(const struct mval *m, double score, u32 id); /* where it stands or would stand */
u32 row_place(const struct mval *m, bytes name);            /* the first row that is not before the name */
bool row_is_at(const struct mval *m, u32 at, u32 id);

/* -- the engine against the model --------------------------------------------- */

/* Finds the key in both and compares what find() tells. */
bool world_find(struct world *w, u32 db, u32 id, struct key_ref *ref);
void check_value(struct world *w, struct key_ref *ref, struct mval *m); /* all of it */
void check_rows(struct world *w, struct key_ref *ref, struct mval *m); /* the same of a stream: suite_rows.c */
void check_db(struct world *w, u32 db); /* every key; counts, scan, random, forecast */
void check_world(struct world *w);

/* Random operations on a value that is there, of any type; drops it once empty. */
void change_value(struct world *w, struct key_ref *ref, struct mval *m, u32 elements);
void change_rows(struct world *w, struct key_ref *ref, struct mval *m, u32 elements); /* a stream: suite_rows.c */
void erase_ranges(struct world *w, struct key_ref *ref, struct mval *m, u32 elements);
/* Adds many elements at once; or some of which one comes twice, and drops the key. Not for strings, nor
 * streams. */
void fill_value(struct world *w, struct key_ref *ref, struct mval *m, u32 elements);
void fill_twice(struct world *w, struct key_ref *ref, struct mval *m, u32 elements);
/* Makes the absent key. */
void create_value(struct world *w, u32 db, u32 id, enum value_type type, struct key_ref *ref);
void drop_key(struct world *w, struct key_ref *ref, struct mval *m);
void change_deadline(struct world *w, struct key_ref *ref, struct mval *m); /* to any, or none */
/* Gives the key a random other name, or makes a copy with one; NULL: that name is taken, or nothing of the
 * key is alive. Returns the model's key of that name. */
struct mval *rename_key(struct world *w, struct key_ref *ref, struct mval *m);
struct mval *copy_key(struct world *w, struct key_ref *ref, struct mval *m, struct key_ref *out);
/* Random changes of the key's companion, whether or not the key is there; an engine without does nothing. */
void change_companion(struct world *w, u32 db, u32 id);
void model_after_drop(struct world *w, const struct mval *key); /* the key went, or got another name */
void compare_companion(struct world *w, struct key_ref *ref, struct mval *companion);
void compare_companions(struct world *w, u32 db);
void flush_db(struct world *w, u32 db);
void swap_dbs(struct world *w, u32 a, u32 b);

/* Calls due() until nothing is left to do, dropping and reaping in the model too.
 * Returns how many references the engine looked at. */
u64 drain_due(struct world *w, u32 db);

#endif
