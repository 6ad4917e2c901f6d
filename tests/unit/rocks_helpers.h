/* A folder that lasts as long as a test, and a small rocks engine in it. */
#ifndef MAYFLY_TESTS_UNIT_ROCKS_HELPERS_H
#define MAYFLY_TESTS_UNIT_ROCKS_HELPERS_H

#include <ftw.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/rocks/codec.h"
#include "engine/rocks/rocks.h"
#include "engine/rocks/store/store.h"

static inline int folder_remove_one(const char *path, const struct stat *st UNUSED, int kind UNUSED,
                                    struct FTW *at UNUSED)
{
    return remove(path);
}

static inline void folder_remove(const char *path) { nftw(path, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Where there is room for it; `what` is part of its name. */
static inline bool folder_make(char *path, size_t room, const char *what)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, room, "%s/mayfly-%s-XXXXXX", tmp ? tmp : "/tmp", what);
    return mkdtemp(path) != NULL;
}

/* With small caches, so that there is life on disk. */
static inline struct rocks_options rocks_small(const char *dir, u32 databases)
{
    static const struct log quiet = {.level = LOG_NOTHING};
    return (struct rocks_options){
        .dir = dir, .log = &quiet, .databases = databases, .seed = 3, .background_threads = 2,
        .block_cache = 8 << 20, .row_cache = 1 << 20, .write_buffer = 8 << 20, .sync = DISK_SYNC_NO,
    };
}

static inline struct engine *rocks_must_open(const struct rocks_options *o)
{
    struct buf why = {0};
    struct engine *e = rocks_engine_open(o, &why);
    if (!e) print_error("%.*s\n", (int)why.n, why.p);
    assert_non_null(e);
    buf_release(&why);
    return e;
}

/* A database and its only session. NULL: it can't be opened. */
static inline struct store_session *store_open_alone(const struct rocks_options *o, bool read_only, bool *failed,
                                                     struct buf *why)
{
    struct store *s = store_open(o, read_only, why);
    return s ? store_session_open(s, failed) : NULL;
}

static inline void store_close_alone(struct store_session *session)
{
    struct store *s = session ? store_of(session) : NULL;
    store_session_close(session);
    store_close(s);
}

/* A string of the old form, into the batch. */
static inline void put_old(struct store_session *s, u64 index, bytes key, i64 deadline_ms, bytes value)
{
    struct buf k = {0}, v = {0};
    codec_key(&k, 1, index, key);
    buf_append_char(&k, CODEC_LEGACY);
    append_u64(&v, (u64)deadline_ms);
    buf_append_bytes(&v, value);
    store_put(s, FAM_DATA, buf_bytes(&k), buf_bytes(&v));
    buf_release(&k);
    buf_release(&v);
}

static inline void rocks_must_refuse(const struct rocks_options *o, const char *says)
{
    struct buf why = {0};
    assert_null(rocks_engine_open(o, &why));
    buf_append_char(&why, '\0');
    if (!strstr(why.p, says)) fail_msg("'%s' is not in '%s'", says, why.p);
    buf_release(&why);
}

#endif
