/* A real redis-server that loads our files, in a folder of its own. */
#ifndef MAYFLY_TESTS_UNIT_REDIS_HELPERS_H
#define MAYFLY_TESTS_UNIT_REDIS_HELPERS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "exec/dataset.h"
#include "exec/harness.h"

#define NEVER ((i64)1 << 42)

static char dir[] = "/tmp/mayfly-rdb-XXXXXX";

/* Runs a shell command in the directory; its exit code. */
static inline int sh(const char *command)
{
    char line[512];
    CHECK(snprintf(line, sizeof line, "cd %s && { %s; } >>log 2>&1", dir, command) < (int)sizeof line);
    return system(line);
}

static inline void path_of(const char *name, char path[64]) { snprintf(path, 64, "%s/%s", dir, name); }

static inline void write_file(const char *name, bytes data)
{
    char path[64];
    path_of(name, path);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data.p, 1, data.n, f), data.n);
    assert_int_equal(fclose(f), 0);
}

static inline void read_file(const char *name, struct buf *data)
{
    char path[64];
    path_of(name, path);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    for (size_t n = 1; n;) data->n += n = fread(buf_reserve(data, 1 << 16), 1, 1 << 16, f);
    fclose(f);
}

/* Has Redis start with these options, and save what it then has as `to`. */
static inline void redis_saves(const char *options, const char *to)
{
    char line[512];
    snprintf(line, sizeof line,
             "redis-server --port 0 --unixsocket sock --pidfile pid --daemonize yes --logfile server.log "
             "--save '' --enable-protected-configs yes --databases %d %s",
             DBS, options);
    assert_int_equal(sh(line), 0);
    assert_int_equal(sh("for i in $(seq 300); do redis-cli -s sock ping | grep -q PONG && exit 0; "
                        "sleep 0.05; done; cat server.log; exit 1"), 0);
    snprintf(line, sizeof line,
             "redis-cli -s sock config set dbfilename %s | grep OK && redis-cli -s sock save | grep OK; "
             "r=$?; redis-cli -s sock shutdown nosave; exit $r",
             to);
    assert_int_equal(sh(line), 0);
    assert_int_equal(sh("for i in $(seq 300); do [ -e sock ] || exit 0; sleep 0.05; done; exit 1"), 0);
}

/* Has Redis load `from` and save it again as `to`. */
static inline void through_redis(const char *from, const char *to)
{
    char line[256];
    snprintf(line, sizeof line, "redis-check-rdb %s", from);
    assert_int_equal(sh(line), 0);
    snprintf(line, sizeof line, "--dbfilename %s", from);
    redis_saves(line, to);
}

/* Deadlines that no wall clock reaches. Field deadlines likewise, or with none none. */
static inline void far_off(struct engine *e, bool fields)
{
    for (u32 db = 0; db < e->databases; db++) {
        struct dump_items keys = dump_keys(e, db);
        for (size_t i = 0; i < keys.n; i++) {
            struct key_ref ref;
            assert_true(e->ops->find(e, db, keys.v[i].name, &ref));
            if (ref.deadline_ms && ref.deadline_ms < NEVER)
                e->ops->set_deadline(e, &ref, NEVER + ref.deadline_ms % 1000);
            if (ref.type != TYPE_HASH || !e->ops->map.has_field_deadlines(e, &ref)) continue;
            struct dump_items names = {0};
            struct map_iter it;
            struct dump_item f = {0};
            e->ops->map.iter(e, &ref, &it);
            while (e->ops->map.next(&it, &f.name, &f.value)) {
                e->ops->map.field_deadline(e, &ref, f.name, &f.deadline_ms);
                char *name = mem_alloc(MAX(f.name.n, 1)); /* a changed field may move */
                memcpy(name, f.name.p, f.name.n);
                f.name.p = name;
                dump_items_add(&names, f);
            }
            for (size_t k = 0; k < names.n; k++) {
                i64 to_ms = names.v[k].deadline_ms && fields ? NEVER + names.v[k].deadline_ms % 1000 : 0;
                e->ops->map.set_field_deadline(e, &ref, names.v[k].name, to_ms);
                mem_free((char *)names.v[k].name.p);
            }
            mem_free(names.v);
        }
        mem_free(keys.v);
    }
}

/* False: there is no Redis to try it with. */
static inline bool redis_open(void)
{
    if (system("command -v redis-server redis-check-rdb redis-check-aof redis-cli >/dev/null 2>&1") != 0) {
        printf("[  PASSED  ] 0 test(s): there is no redis-server\n");
        return false;
    }
    CHECK(mkdtemp(dir));
    return true;
}

/* Files and logs stay where something failed. */
static inline int redis_close(int failed)
{
    char line[64];
    snprintf(line, sizeof line, "rm -rf %s", dir);
    if (!failed && system(line) != 0) failed = 1;
    return failed;
}

#endif
