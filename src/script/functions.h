/* Functions: libraries of Lua code that clients load once and call by name. They belong to the data: files,
 * replicas and the rocks engine have them, too.
 *
 * A function_set is the libraries at one moment. Changes belong to the open transaction, like all others:
 * they are recorded, and a commit that fails undoes them in reverse order. If another set replaces the whole,
 * the old one is kept until the commit. A full sync fills another set (functions_stage), which replaces the
 * one in use together with the data.
 *
 * All libraries share one interpreter, made when it is first needed. While one is being loaded, it has few
 * globals (redis.register_function, redis.log); when functions run, they have those of any script. */
#ifndef MAYFLY_SCRIPT_FUNCTIONS_H
#define MAYFLY_SCRIPT_FUNCTIONS_H

#include "rdb/rdb_out.h"
#include "script/script.h"

#define FUNCTIONS_MAX ((size_t)32 << 20) /* bytes of code in all libraries */
#define FUNCTION_LOAD_MS 500             /* the longest a library may take to load */

struct function {
    char *name;
    struct buf description;  /* if there is one: */
    bool described;
    u32 flags;               /* SCRIPT_* */
    int ref;                 /* in the interpreter's registry */
};

struct library {
    u32 refs;                /* how many sets have it */
    char *name;
    struct buf code;         /* with its first line */
    struct function *functions;
    u32 count, cap;
};

struct function_set {
    struct library **libraries;  /* sorted by name */
    struct function **functions; /* of all libraries, sorted by name, case-insensitively */
    u32 count, cap, function_count, function_cap;
    size_t code_bytes;
};

struct functions {
    struct script_vm vm;
    struct function_set *live;
    struct function_set *before; /* the previous set, if another one replaced it in this transaction … */
    struct library_change {      /* … and the changes before that */
        struct library *lib;     /* a reference of its own */
        bool added;              /* or removed */
    } *changes;
    u32 change_count, change_cap;
    bool one_row; /* the engine has all libraries in one row: function_rows.c */
    struct function_set *staged; /* NULL: no full sync is being loaded */
    struct library *loading;     /* register_function adds to it; NULL: it may not be called */
};

struct functions *functions_of(struct node *n);  /* creates them if needed */
void functions_release(struct node *n);

/* The set in use; NULL: none. */
static inline const struct function_set *functions_live(const struct node *n)
{
    return n->functions ? n->functions->live : NULL;
}

/* Whether there is a function of this name with the flag no-writes. */
bool functions_only_read(const struct node *n, bytes name);

/* -- sets: function_set.c ---------------------------------------------------------------------- */

struct library *library_new(bytes name, bytes code);
void library_drop(struct library *lib, lua_State *L); /* drops one reference */
struct function *library_find(const struct library *lib, bytes name);
/* The library owns the reference from here on. */
void library_add(struct library *lib, const char *name, const bytes *description, u32 flags, int ref);

struct function_set *set_new(void);
struct function_set *set_copy(const struct function_set *set);
void set_free(struct function_set *set, lua_State *L);
struct library *set_library(const struct function_set *set, bytes name);
struct function *set_function(const struct function_set *set, bytes name);
void set_add(struct function_set *set, struct library *lib); /* none of its names may be in the set */
void set_remove(struct function_set *set, struct library *lib, lua_State *L);

/* -- loading: function_load.c ------------------------------------------------------------------ */

/* Compiles and runs a library's code. NULL: *error has the text, without an error code. `taken` is called
 * with the name as soon as it is known, and may reject it (writing the error); may be NULL. limit_ms 0: no
 * limit. */
struct library *library_load(struct node *n, bytes code, u32 limit_ms, struct buf *error,
                             bool (*taken)(void *arg, bytes name, struct buf *error), void *arg);

/* The environment of libraries, set up once. */
void functions_open_env(struct functions *f);

/* -- changing libraries: functions.c. False: the text of the error is in *error -------------- */

/* `aside`: into those of a full sync. The library's name is appended to *name, unless that is NULL. */
NODISCARD bool functions_load(struct node *n, bool aside, bytes code, bool replace, u32 limit_ms,
                              struct buf *name, struct buf *error);
NODISCARD bool functions_delete(struct node *n, bytes name);
void functions_flush(struct node *n);

enum restore_policy { RESTORE_APPEND, RESTORE_FLUSH, RESTORE_REPLACE };
NODISCARD bool functions_restore(struct node *n, bytes payload, enum restore_policy policy, u32 limit_ms,
                                 struct buf *error);

/* -- as bytes ---------------------------------------------------------------------------------- */

/* Each library as it is in an RDB file. */
void functions_save(const struct function_set *set, struct rdb_out *out);
/* The same with a footer, for FUNCTION DUMP and FUNCTION RESTORE. */
void functions_dump(const struct function_set *set, size_t compress_max, struct buf *out);

/* -- transactions ------------------------------------------------------------------------------ */

static inline bool functions_changed(const struct node *n)
{
    const struct functions *f = n->functions;
    return f && (f->before || f->change_count);
}
void functions_settle(struct node *n, bool kept);   /* after a commit */

/* -- storage in the engine: function_rows.c -------------------------------------------------- */

void functions_write(const struct node *n, struct engine *e); /* before a commit: writes the changes */
/* At start: loads the stored libraries. False: the text of the error is in *error. */
NODISCARD bool functions_recall(struct node *n, struct engine *e, struct buf *error);

/* -- a full sync ------------------------------------------------------------------------------- */

/* A full sync: stages a set for its libraries, until it is put into use or dropped. */
void functions_stage(struct node *n);
void functions_adopt(struct node *n);
void functions_unstage(struct node *n);

#endif
