/* The keys that access control sees are the keys that a command touches: random argument lists for every command, run
 * on an engine that notes each key it is asked for.
 *
 * There are four realms of keys, with the same data in each but for the names of its elements:
 *
 *   pub:  the user may read and write
 *   r:    read only            %R~r:*
 *   w:    write only           %W~w:*
 *   no:   may not use at all
 *
 * so that what leaks into a reply can be told by the element's name. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "command/commands.h"
#include "exec/acl.h"
#include "harness.h"
#include "rounds.h"
#include "syntax_gen.h"

#define SEED 11
#define REQUESTS ROUNDS(800)           /* per command */
#define REQUESTS_MOVABLE ROUNDS(12000) /* … of one whose keys are found by its words */
#define REQUESTS_FRESH 80              /* … after which the data is made again */

static const char *const realms[] = {"pub", "r", "w", "no", NULL};

/* -- an engine that notes keys ------------------------------------------------------------------------- */

#define SPY_KEYS 4096

struct spy {
    struct engine_ops ops; /* what the engine is given for its own: the address of the spy */
    const struct engine_ops *real;
    u32 n;
    struct {
        char name[16];
        bool write;
    } v[SPY_KEYS];
};

static void spy_note(struct spy *s, bytes key, bool write)
{
    if (key.n >= sizeof s->v[0].name) return; /* none of ours: concatenated by SORT … GET */
    CHECK(s->n < SPY_KEYS);
    if (key.n) memcpy(s->v[s->n].name, key.p, key.n);
    s->v[s->n].name[key.n] = '\0';
    s->v[s->n++].write = write;
}

static struct spy *spy_of(struct engine *e) { return (struct spy *)(uintptr_t)e->ops; }

static bool spy_find(struct engine *e, u32 db, bytes key, struct key_ref *ref)
{
    spy_note(spy_of(e), key, false);
    return spy_of(e)->real->find(e, db, key, ref);
}

static void spy_create(struct engine *e, u32 db, bytes key, enum value_type type, struct key_ref *ref)
{
    spy_note(spy_of(e), key, true);
    spy_of(e)->real->create(e, db, key, type, ref);
}

static void spy_drop(struct engine *e, struct key_ref *ref)
{
    spy_note(spy_of(e), ref->key, true);
    spy_of(e)->real->drop(e, ref);
}

static void spy_changed(void *arg, u32 db, bytes key)
{
    (void)db;
    spy_note(arg, key, true);
}

static void spy_flushing(void *arg, u32 db) { (void)arg, (void)db; }
static void spy_swapped(void *arg, u32 a, u32 b) { (void)arg, (void)a, (void)b; }
static const struct keyspace_watcher spy_watcher = {spy_changed, spy_flushing, spy_swapped};

static void spy_attach(struct spy *s, struct engine *e)
{
    s->real = e->ops;
    s->ops = *e->ops;
    s->ops.find = spy_find;
    s->ops.create = spy_create;
    s->ops.drop = spy_drop;
    e->ops = &s->ops;
}

/* -- the world and its data ------------------------------------------------------------------------------ */

struct rig {
    struct world w;
    struct spy spy;
    struct acl acl;
    struct acl_user *user;
    struct syntax_gen gen;
    int ran;   /* requests that did what they were asked to */
    int wrong; /* keys that were used against the rules */
};

static void rig_open(struct rig *r)
{
    static const char *const rules[] = {"on", "nopass", "+@all", "&*", "~pub:*", "%R~r:*", "%W~w:*"};
    struct engine *e = memory_engine_new(DBS, 7);
    *r = (struct rig){.gen = {.realms = realms}};
    world_open_on(&r->w, e);
    spy_attach(&r->spy, e);
    acl_init(&r->acl);
    r->user = acl_add(&r->acl, BYTES_LIT("u"));
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) assert_null(acl_user_apply(&r->acl, r->user, bytes_str(rules[i])));
}

static void rig_close(struct rig *r)
{
    r->w.region.eng->ops = r->spy.real;
    world_close(&r->w);
    acl_release(&r->acl);
}

/* Everything that can be told apart is called "<element>-of-<realm>"; the scores and values of all realms are equal. */
static void make_realm(struct world *w, const char *realm)
{
    static const char *const lines[] = {
        "SET %s:s text-of-%s", "SET %s:c 1", "SETBIT %s:b 3 1", "PFADD %s:p a b", "HSET %s:h a text-of-%s text-of-%s v",
        "RPUSH %s:l a text-of-%s", "SADD %s:t a text-of-%s", "ZADD %s:z 1 a 2 text-of-%s",
        "GEOADD %s:g 1 1 a 1 1 text-of-%s", "XADD %s:x 1-1 f text-of-%s", "XADD %s:x 1-2 f text-of-%s",
        "XGROUP CREATE %s:x g 0", "XGROUP CREATE %s:x STREAMS 0", "XGROUP CREATE %s:x GROUP 0",
        "XREADGROUP GROUP g a COUNT 1 STREAMS %s:x >",
    };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        char line[128];
        snprintf(line, sizeof line, lines[i], realm, realm, realm);
        run_all(w, line);
    }
}

static void make_data(struct rig *r)
{
    for (u32 db = 0; db < DBS; db++) r->spy.real->flush(r->w.region.eng, db);
    for (size_t i = 0; realms[i]; i++) make_realm(&r->w, realms[i]);
    recorder_clear(&r->w.journal);
}

/* -- requests -------------------------------------------------------------------------------------------------- */

static bool names_keys(const struct command *cmd)
{
    return cmd->specs[0].begin != SEEK_NONE && !(cmd->specs[0].flags & KEY_NOT_KEY);
}

/* MEMORY USAGE, MIGRATE and SITE KEY need a server. Scripts name keys but touch none by themselves: they are tried
 * around other commands. */
static bool can_be_tried(const struct command *cmd)
{
    return names_keys(cmd) && cmd->run != cmd_memory_usage && cmd->run != cmd_migrate &&
           cmd->run != cmd_site_key && strcmp(cmd->group, "scripting") != 0;
}

/* Redis lets who may read a stream be a consumer of it, and who may read a HyperLogLog have its count kept. */
static bool notes_what_it_read(const struct command *cmd)
{
    return cmd->run == cmd_xreadgroup || cmd->run == cmd_pfcount;
}

static bool failed(const struct rig *r) { return r->w.out.n > 0 && r->w.out.p[0] == '-'; }

static void show(struct rig *r, const char *what, const char *key)
{
    fprintf(stderr, "%s %s:", what, key);
    for (int i = 0; i < r->gen.argc; i++) fprintf(stderr, " '%.*s'", (int)r->gen.argv[i].n, r->gen.argv[i].p);
    fprintf(stderr, "\n → %.*s\n", (int)MIN(r->w.out.n, (size_t)200), r->w.out.p);
    r->wrong++;
}

static void send_argv(struct rig *r, int argc, bytes *argv)
{
    r->spy.n = 0;
    r->w.region.ks.watcher = &spy_watcher;
    r->w.region.ks.watcher_arg = &r->spy;
    run_argv(&r->w, argc, argv);
}

static void end_request(struct rig *r)
{
    r->ran += !failed(r);
    r->w.session.user = NULL;
    run(&r->w, "UNWATCH");
}

typedef void (*try_fn)(struct rig *r, const struct command *cmd);

static u64 hash_of(const char *name)
{
    u64 hash = 0;
    while (*name) hash = hash * 31 + (u8)*name++;
    return hash;
}

/* Returns which part of the commands did what they were asked to, at least once. */
static double try_each(struct rig *r, try_fn try)
{
    u32 tried = 0, did = 0;
    for (u32 id = 0; id < command_count(); id++) {
        const struct command *cmd = command_at(id);
        if (!can_be_tried(cmd)) continue;
        r->ran = 0;
        r->gen.rng = SEED + hash_of(cmd->name);
        int rounds = cmd->flags & CMD_MOVABLE_KEYS ? REQUESTS_MOVABLE : REQUESTS;
        for (int i = 0; i < rounds; i++) {
            if (i % REQUESTS_FRESH == 0) make_data(r);
            syntax_gen_next(&r->gen, cmd);
            try(r, cmd);
            end_request(r);
        }
        tried++;
        did += r->ran > 0;
    }
    return (double)did / tried;
}

/* -- what a command touches ------------------------------------------------------------------------------------- */

static bool reads_by_patterns(const struct command *cmd) { return cmd->run == cmd_sort || cmd->run == cmd_sort_ro; }

/* Whether the keys that were found for a request allow what was done with this one. */
static bool is_among(const struct rig *r, const struct key_use *keys, int n, u32 touched, bool any_use)
{
    bytes name = bytes_str(r->spy.v[touched].name);
    bool written = r->spy.v[touched].write && !any_use;
    for (int i = 0; i < n; i++) {
        bool may_write = keys[i].flags & (KEY_INSERT | KEY_DELETE | KEY_UPDATE);
        if (bytes_eq(r->gen.argv[keys[i].at], name) && (may_write || !written)) return true;
    }
    return false;
}

static bool was_touched(const struct rig *r, bytes key)
{
    for (u32 i = 0; i < r->spy.n; i++)
        if (bytes_eq(bytes_str(r->spy.v[i].name), key)) return true;
    return false;
}

static void touches_what_it_names(struct rig *r, const struct command *cmd)
{
    struct key_use keys[SYNTAX_GEN_ARGS];
    int n = command_keys(cmd, r->gen.argc, r->gen.argv, keys, SYNTAX_GEN_ARGS);
    send_argv(r, r->gen.argc, r->gen.argv);
    for (u32 i = 0; i < r->spy.n; i++) {
        if (is_among(r, keys, n, i, notes_what_it_read(cmd))) continue;
        if (!reads_by_patterns(cmd) || r->spy.v[i].write)
            show(r, r->spy.v[i].write ? "writes" : "reads", r->spy.v[i].name);
    }
    for (int i = 0; i < n && !failed(r); i++) {
        bytes key = r->gen.argv[keys[i].at];
        if (keys[i].flags & KEY_OW && cmd->flags & CMD_MOVABLE_KEYS && !was_touched(r, key)) show(r, "leaves alone", "a key that it names");
    }
}

static void commands_touch_the_keys_they_name(void **state)
{
    (void)state;
    struct rig r;
    rig_open(&r);
    assert_true(try_each(&r, touches_what_it_names) > 0.95); /* RESTORE does not: random payloads are invalid */
    assert_int_equal(r.wrong, 0);
    rig_close(&r);
}

/* -- what a user gets -------------------------------------------------------------------------------------------- */

static bool in_realm(const char *key, const char *realm)
{
    return strncmp(key, realm, strlen(realm)) == 0 && key[strlen(realm)] == ':';
}

static void check_nothing_leaked(struct rig *r, const struct command *cmd)
{
    for (u32 i = 0; i < r->spy.n; i++) {
        const char *key = r->spy.v[i].name;
        if (in_realm(key, "no")) show(r, "touches", key);
        if (in_realm(key, "r") && r->spy.v[i].write && !notes_what_it_read(cmd)) show(r, "writes", key);
    }
    bytes out = buf_bytes(&r->w.out);
    if (memmem(out.p, out.n, "-of-no", 6) || memmem(out.p, out.n, "-of-w", 5)) show(r, "tells", "what is secret");
}

static void run_by_itself(struct rig *r, const struct command *cmd)
{
    r->w.session.user = r->user;
    send_argv(r, r->gen.argc, r->gen.argv);
    check_nothing_leaked(r, cmd);
}

static void run_by_a_script(struct rig *r, const struct command *cmd)
{
    bytes argv[SYNTAX_GEN_ARGS + 3] = {BYTES_LIT("EVAL"), BYTES_LIT("return redis.pcall(unpack(ARGV))"), BYTES_LIT("0")};
    memcpy(argv + 3, r->gen.argv, (size_t)r->gen.argc * sizeof *argv);
    r->w.session.user = r->user;
    send_argv(r, r->gen.argc + 3, argv);
    check_nothing_leaked(r, cmd);
}

/* The rules change between the command and EXEC. */
static void run_in_a_transaction(struct rig *r, const struct command *cmd)
{
    run(&r->w, "MULTI");
    send_argv(r, r->gen.argc, r->gen.argv);
    r->w.session.user = r->user;
    send_argv(r, 1, (bytes[]){BYTES_LIT("EXEC")});
    check_nothing_leaked(r, cmd);
}

static try_fn by_itself = run_by_itself, by_a_script = run_by_a_script, in_a_transaction = run_in_a_transaction;

static void users_touch_only_their_keys(void **state)
{
    struct rig r;
    rig_open(&r);
    try_each(&r, *(try_fn *)*state);
    assert_int_equal(r.wrong, 0);
    rig_close(&r);
}

/* -- as they were found ------------------------------------------------------------------------------------------- */

static void names_that_are_spelled_like_keywords(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "GEORADIUS pub:g 1 1 100 km STORE pub:d STORE no:d",
        "GEORADIUS pub:g 1 1 100 km STOREDIST pub:d STOREDIST no:d",
        "GEORADIUS pub:g 1 1 100 km STORE pub:d STOREDIST no:d",
        "GEORADIUS pub:g 1 1 100 km COUNT 1 STORE STORE STORE no:d",
        "GEORADIUSBYMEMBER pub:g a 100 km STORE pub:d STORE no:d",
        "XREADGROUP COUNT 1 GROUP STREAMS pub:x noack noack STREAMS no:x >",
        "XREADGROUP BLOCK 1 GROUP STREAMS pub:x NOACK STREAMS no:x >",
        "SORT pub:l ALPHA STORE pub:d STORE no:d",
        "PFMERGE no:p",
        "XCLAIM w:x g a 0 1-1",
        "XAUTOCLAIM w:x g a 0 0",
    };
    static const char *const allowed[] = {
        "GEORADIUS r:g 1 1 100 km STORE pub:d STORE w:d",
        "GEORADIUS r:g 1 1 100 km STORE no:d STORE w:d", /* the last one counts */
        "XREADGROUP COUNT 1 GROUP STREAMS no:x noack STREAMS r:x >",
        "PFMERGE pub:n r:p",
        "XCLAIM w:x g a 0 1-1 JUSTID",
    };
    struct rig r;
    rig_open(&r);
    make_data(&r);
    r.w.session.user = r.user;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        assert_string_equal(run(&r.w, refused[i]),
                            "-NOPERM No permissions to access a key");
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) assert_true(run(&r.w, allowed[i])[0] != '-');
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_touch_the_keys_they_name),
        cmocka_unit_test_prestate(users_touch_only_their_keys, &by_itself),
        cmocka_unit_test_prestate(users_touch_only_their_keys, &by_a_script),
        cmocka_unit_test_prestate(users_touch_only_their_keys, &in_a_transaction),
        cmocka_unit_test(names_that_are_spelled_like_keywords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
