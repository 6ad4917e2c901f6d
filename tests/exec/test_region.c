/* Regions: what is refused before a command runs, what a tick commits, and what
 * happens when the engine fails. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "script/script.h"
#include "harness.h"

/* -- refusals ------------------------------------------------------------------------ */

#define X59 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X64 X59 "xxxxx"

/* The texts are Redis 7.0.15's. */
static const struct {
    const char *command, *reply;
} refusals[] = {
    {"nope", "-ERR unknown command 'nope', with args beginning with: "},
    {"nope a b", "-ERR unknown command 'nope', with args beginning with: 'a' 'b' "},
    {"nope ''", "-ERR unknown command 'nope', with args beginning with: '' "},
    {"'' x", "-ERR unknown command '', with args beginning with: 'x' "},
    {"\"no\\r\\npe\" \"a\\nb\"", "-ERR unknown command 'no  pe', with args beginning with: 'a b' "},
    {"nope " X64 X64 "y z",
     "-ERR unknown command 'nope', with args beginning with: '" X64 X64 "' "},
    {X64 X64 "y " X64 " yy" X64 " z", /* of the arguments 128 bytes are shown, quotes included */
     "-ERR unknown command '" X64 X64 "', with args beginning with: '" X64 "' 'yy" X59 "' "},
    {"object|encoding k", "-ERR unknown command 'object|encoding', with args beginning with: 'k' "},
    {"get", "-ERR wrong number of arguments for 'get' command"},
    {"GET a b", "-ERR wrong number of arguments for 'get' command"},
    {"mset", "-ERR wrong number of arguments for 'mset' command"},
    {"object", "-ERR wrong number of arguments for 'object' command"},
    {"object encoding", "-ERR wrong number of arguments for 'object|encoding' command"},
    {"object encoding a b", "-ERR wrong number of arguments for 'object|encoding' command"},
    {"object nope", "-ERR unknown subcommand 'nope'. Try OBJECT HELP."},
    {"Object \"no\\npe\" x", "-ERR unknown subcommand 'no pe'. Try OBJECT HELP."},
    {"object " X64 X64 "yy", "-ERR unknown subcommand '" X64 X64 "'. Try OBJECT HELP."},
};

static void unfit_requests_are_refused(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
        assert_string_equal(run(&w, refusals[i].command), refusals[i].reply);
        assert_true(w.outcome.rejected && !w.outcome.failed);
    }
    assert_int_equal(w.journal.n, 0);
    world_close(&w);
}

static void outcomes_tell_what_happened(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run(&w, "SET k v");
    assert_string_equal(w.outcome.cmd->name, "set");
    assert_true(!w.outcome.rejected && !w.outcome.failed);
    run(&w, "LPUSH k v");
    assert_string_equal(w.outcome.cmd->name, "lpush");
    assert_true(!w.outcome.rejected && w.outcome.failed);
    run(&w, "object ENCODING k");
    assert_string_equal(w.outcome.cmd->name, "object|encoding");
    run(&w, "GET");
    assert_string_equal(w.outcome.cmd->name, "get");
    assert_true(w.outcome.rejected);
    run(&w, "nope");
    assert_null(w.outcome.cmd);
    world_close(&w);
}

static void strangers_may_do_little(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    w.session.authenticated = false;
    assert_string_equal(run(&w, "GET k"), "-NOAUTH Authentication required.");
    assert_true(w.outcome.rejected);
    assert_string_equal(run(&w, "SET k v"), "-NOAUTH Authentication required.");
    assert_int_equal(count_of(&w, 0), 0);
    /* Redis looks at the command itself first. */
    assert_string_equal(run(&w, "GET"), "-ERR wrong number of arguments for 'get' command");
    assert_string_equal(run(&w, "nope"), "-ERR unknown command 'nope', with args beginning with: ");
    w.session.authenticated = true;
    assert_string_equal(run(&w, "SET k v"), "OK");
    world_close(&w);

    int open_to_all = 0;
    for (u32 i = 0; i < command_count(); i++)
        open_to_all += (command_at(i)->flags & CMD_NO_AUTH) != 0;
    assert_int_equal(open_to_all, 4); /* AUTH HELLO QUIT RESET */
}

static void no_memory_no_growth(void **state)
{
    (void)state;
    static const char *const refused = "-OOM command not allowed when used memory > 'maxmemory'.";
    struct world w;
    world_open(&w);
    run_all(&w, "SET k v;RPUSH l a b;SET d v PX 1000");
    journal_text(&w);
    w.node.evictor.maxmemory = 1; /* policy: noeviction */
    assert_string_equal(run(&w, "SET k w"), refused);
    assert_true(w.outcome.rejected);
    assert_string_equal(run(&w, "RPUSH l c"), refused);
    assert_string_equal(run(&w, "COPY k x"), refused);
    assert_string_equal(run(&w, "GET k"), "v");
    assert_string_equal(run(&w, "LPOP l"), "a");
    assert_string_equal(run(&w, "EXPIRE k 100"), "1");
    assert_string_equal(run(&w, "DEL k"), "1");
    assert_string_equal(journal_text(&w), "LPOP l | PEXPIREAT k 1700000100000 | DEL k");
    at(&w, 1100); /* what is dead goes all the same, though the command is refused */
    assert_string_equal(run(&w, "SET k w"), refused);
    assert_string_equal(journal_text(&w), "DEL d");
    w.node.evictor.maxmemory = 0;
    assert_string_equal(run(&w, "SET k w"), "OK");
    world_close(&w);
}

/* -- determinism ----------------------------------------------------------------------- */

/* Chance comes from the region's seed alone. */
/* The storage takes no writes for a while (disk full …): they get its error, reads go on. */
static void writes_may_be_refused(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET k v; LPUSH l a");
    w.node.refuse_writes = "MISCONF no room";
    static const char *const writes[] = {"SET k w", "DEL k", "LPOP l", "EXPIRE k 10", "GETEX k", "FLUSHALL"};
    for (size_t i = 0; i < ARRAY_LEN(writes); i++) {
        assert_string_equal(run(&w, writes[i]), "-MISCONF no room");
        assert_true(w.outcome.rejected);
    }
    assert_string_equal(run(&w, "GET k"), "v");
    assert_string_equal(run(&w, "LRANGE l 0 -1"), "[a]");
    assert_string_equal(run(&w, "TTL k"), "-1");
    w.node.refuse_writes = NULL;
    assert_string_equal(run(&w, "SET k w"), "OK");
    world_close(&w);
}

static void same_seed_same_answers(void **state)
{
    (void)state;
    struct world a, b;
    char line[64];
    world_open(&a);
    world_open(&b);
    for (int i = 0; i < 200; i++) {
        snprintf(line, sizeof line, "SADD s m%d", i);
        run_all(&a, line);
        run_all(&b, line);
    }
    for (int i = 0; i < 100; i++) {
        char first[32];
        snprintf(first, sizeof first, "%s", run(&a, i % 2 ? "SRANDMEMBER s" : "SPOP s"));
        assert_string_equal(run(&b, i % 2 ? "SRANDMEMBER s" : "SPOP s"), first);
    }
    assert_int_equal(a.journal.n, b.journal.n);
    for (size_t i = 1; i < a.journal.n; i++) {
        assert_true(a.journal.v[i].seed == b.journal.v[i].seed);
        assert_true(a.journal.v[i].seed != a.journal.v[i - 1].seed);
    }
    world_close(&a);
    world_close(&b);
}

static void clients_may_leave_the_access_clock_alone(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    run_all(&w, "SET k v");
    at(&w, 10000);
    w.session.no_touch = true;
    run_all(&w, "GET k;OBJECT ENCODING k;TTL k;EXISTS k");
    assert_string_equal(run(&w, "OBJECT IDLETIME k"), "10");
    run_all(&w, "TOUCH k"); /* which asks for it */
    assert_string_equal(run(&w, "OBJECT IDLETIME k"), "0");
    at(&w, 20000);
    run_all(&w, "GET k;TTL k");
    assert_string_equal(run(&w, "OBJECT IDLETIME k"), "10");
    w.session.no_touch = false;
    run_all(&w, "OBJECT ENCODING k;TTL k;EXISTS k");
    assert_string_equal(run(&w, "OBJECT IDLETIME k"), "10");
    run_all(&w, "GET k");
    assert_string_equal(run(&w, "OBJECT IDLETIME k"), "0");
    world_close(&w);
}

/* -- an engine that can be made to fail --------------------------------------------------- */

/* Decorates the memory engine: counts commits, and fails a primitive on demand. */
struct flaky {
    struct engine_ops ops, real;
    bool fail_find, fail_put;
    u64 commits, committed_seq;
    bool fail_commit;
    u32 aborts;
};

static struct flaky *flaky_of(struct engine *e) { return (struct flaky *)(void *)e->ops; }

static bool flaky_find(struct engine *e, u32 db, bytes key, struct key_ref *ref)
{
    struct flaky *f = flaky_of(e);
    bool found = f->real.find(e, db, key, ref);
    if (!f->fail_find) return found;
    e->failed = true;
    *ref = (struct key_ref){.key = key, .db = db, .hash = ref->hash};
    return false;
}

static void flaky_put(struct engine *e, u32 db, bytes key, struct key_ref *ref, bytes value,
                      i64 deadline_ms)
{
    struct flaky *f = flaky_of(e);
    if (f->fail_put) e->failed = true;
    else f->real.str.put(e, db, key, ref, value, deadline_ms);
}

static bool flaky_commit(struct engine *e, u64 seq)
{
    struct flaky *f = flaky_of(e);
    f->commits++;
    f->committed_seq = seq;
    return f->real.commit(e, seq) && !f->fail_commit;
}

static void flaky_abort(struct engine *e) { flaky_of(e)->aborts++; }

static void open_flaky(struct world *w, struct flaky *f)
{
    struct engine *e = memory_engine_new(DBS, 7);
    *f = (struct flaky){.ops = *e->ops, .real = *e->ops};
    f->ops.find = flaky_find;
    f->ops.str.put = flaky_put;
    f->ops.commit = flaky_commit;
    f->ops.abort = flaky_abort;
    e->ops = &f->ops;
    world_open_on(w, e);
}

static const char io_error[] = "-IOERR the storage engine failed; see the log";

static void failures_are_told(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    open_flaky(&w, &f);
    run_all(&w, "SET k v;SET other v");
    journal_text(&w);

    f.fail_find = true; /* "absent" is not an answer then */
    assert_string_equal(run(&w, "GET k"), io_error);
    assert_true(w.outcome.failed && !w.outcome.rejected);
    assert_string_equal(run(&w, "MGET k other"), io_error);
    assert_string_equal(run(&w, "EXISTS k"), io_error);
    f.fail_find = false;
    assert_string_equal(run(&w, "GET k"), "v"); /* no failure sticks to the next command */

    world_close(&w);
}

/* A write that failed may be half done: its tick is rolled back, and the next starts from the old state. */
static void a_failed_write_dooms_its_tick(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    open_flaky(&w, &f);
    run_all(&w, "SET k v");
    at(&w, 1);
    journal_text(&w);
    f.fail_put = true;
    assert_string_equal(run(&w, "SET k w"), io_error);
    assert_true(w.outcome.failed && !w.outcome.rejected);
    f.fail_put = false;
    assert_string_equal(run(&w, "SET k w EX 5"), io_error);
    assert_true(w.outcome.rejected);
    assert_string_equal(run(&w, "GET k"), io_error); /* what it would read was never so */
    assert_string_equal(journal_text(&w), "");
    assert_false(region_commit(&w.region));
    assert_int_equal(f.aborts, 1);
    region_begin(&w.region, T0 + 2);
    assert_string_equal(run(&w, "SET k w"), "OK");
    assert_true(region_commit(&w.region));
    assert_string_equal(journal_text(&w), "SELECT 0; SET k w");

    f.fail_commit = true;
    region_begin(&w.region, T0 + 3);
    u64 committed = w.region.committed;
    run(&w, "SET k x");
    assert_false(region_commit(&w.region));
    assert_int_equal(w.region.committed, committed);
    assert_int_equal(f.aborts, 1); /* commit has ended the transaction itself */
    world_close(&w);
}

/* The reply so far, of other commands of the pipeline, stays as it is. */
static void a_failure_replaces_only_its_own_reply(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    open_flaky(&w, &f);
    run_all(&w, "RPUSH k a b");
    struct buf out = {0};
    struct reply reply = {.out = &out, .proto = 2};
    bytes range[] = {BYTES_LIT("lrange"), BYTES_LIT("k"), BYTES_LIT("0"), BYTES_LIT("-1")};
    struct request q = {&w.session, NULL, ARRAY_LEN(range), range, &reply};
    struct outcome o;
    region_run(&w.region, &q, &o);
    f.fail_find = true;
    region_run(&w.region, &q, &o);
    f.fail_find = false;
    region_run(&w.region, &q, &o);
    static const char expected[] = "*2\r\n$1\r\na\r\n$1\r\nb\r\n"
                                   "-IOERR the storage engine failed; see the log\r\n"
                                   "*2\r\n$1\r\na\r\n$1\r\nb\r\n";
    assert_int_equal(out.n, sizeof expected - 1);
    assert_memory_equal(out.p, expected, out.n);
    assert_int_equal(reply.errors, 1);
    buf_release(&out);
    world_close(&w);
}

/* -- commits ---------------------------------------------------------------------------------- */

static void a_tick_commits_once(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    open_flaky(&w, &f);
    run_all(&w, "SET a 1;SET b 1 PX 5;GET a;INCR a");
    assert_int_equal(f.commits, 0);
    assert_int_equal(w.region.committed, 0);
    assert_true(region_commit(&w.region));
    assert_int_equal(f.commits, 1);
    assert_int_equal(f.committed_seq, 3);
    assert_int_equal(w.region.committed, 3);
    region_begin(&w.region, T0 + 100);
    each_step(&w);
    assert_true(region_commit(&w.region));
    assert_int_equal(f.committed_seq, 4); /* the cycle's DEL */
    region_begin(&w.region, T0 + 200);
    run(&w, "GET a");
    assert_true(region_commit(&w.region));
    assert_int_equal(f.commits, 3);
    assert_int_equal(w.region.committed, 4);
    world_close(&w);
}

/* Without a sink no record is made, but changes are numbered all the same. */
static void without_sinks_there_are_no_records(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    journal_detach(&w.region.journal, &w.journal.sink);
    run_all(&w, "SET a 1 PX 5;SPOP s;ZADD z 1 a;ZPOPMIN z;INCRBYFLOAT f 1");
    run_all(&w, "HSETEX h EX 5 FIELDS 1 f v");
    at(&w, 10);
    run_all(&w, "GET a"); /* it is dead, and goes */
    assert_int_equal(w.region.journal.seq, 6); /* SPOP changed nothing */
    assert_int_equal(w.region.journal.open.resp.n, 0);
    journal_attach(&w.region.journal, &w.journal.sink);
    run_all(&w, "SET b 1");
    assert_int_equal(w.journal.v[0].seq, 7);
    assert_string_equal(journal_text(&w), "SELECT 0; SET b 1");
    world_close(&w);
}

/* -- what is settled ---------------------------------------------------------------------------- */

/* What the commands of a tick change unsettles it, with sinks or without; reads do not. */
static void changes_unsettle(void **state)
{
    static const char *const changes[] = {
        "SET k v", "GET dead", "LPOP list", "EVAL \"return redis.call('INCR', 'n')\" 0", "SPOP set",
        "XREADGROUP GROUP g c STREAMS x >", "FUNCTION FLUSH", "FLUSHALL",
    };
    (void)state;
    for (int sinks = 0; sinks < 2; sinks++) {
        struct world w;
        world_open(&w);
        if (!sinks) journal_detach(&w.region.journal, &w.journal.sink);
        run_all(&w, "SET dead 1 PX 5;RPUSH list a b;SADD set a;SET s v;XADD x 1-1 f v;XGROUP CREATE x g 0");
        for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
            at(&w, 10 + (i64)i);
            run_all(&w, "GET s;EXISTS nothing;SREM set nothing;EVAL \"return redis.call('GET', 's')\" 0");
            assert_true(region_settled(&w.region));
            run_all(&w, changes[i]);
            assert_false(region_settled(&w.region));
        }
        at(&w, 100);
        run_all(&w, "SET k v PX 1;MULTI;GET k");
        at(&w, 200);
        assert_true(region_settled(&w.region));
        each_step(&w); /* the cycle's change is one, too */
        assert_false(region_settled(&w.region));
        at(&w, 300);
        run_all(&w, "SET k v;EXEC");
        assert_false(region_settled(&w.region));
        world_close(&w);
    }
}

/* What was not kept gives its numbers back, so that the next change has the one after the last commit. */
static void a_failed_commit_leaves_no_gap(void **state)
{
    (void)state;
    for (int sinks = 0; sinks < 2; sinks++) {
        struct world w;
        struct flaky f;
        open_flaky(&w, &f);
        if (!sinks) journal_detach(&w.region.journal, &w.journal.sink);
        run_all(&w, "SET k v;SET l v");
        at(&w, 1);
        f.fail_commit = true;
        run_all(&w, "SET k w;SET l w;SET m w");
        assert_false(region_commit(&w.region));
        assert_true(region_settled(&w.region)); /* there is nothing left to be kept */
        f.fail_commit = false;
        f.fail_put = true;
        region_begin(&w.region, T0 + 2);
        run(&w, "SET k x");
        assert_false(region_settled(&w.region)); /* it may be half done */
        f.fail_put = false;
        assert_false(region_commit(&w.region));
        region_begin(&w.region, T0 + 3);
        run_all(&w, "SET k y");
        assert_true(region_commit(&w.region));
        assert_int_equal(f.committed_seq, 3);
        assert_int_equal(w.region.committed, 3);
        if (sinks) assert_int_equal(w.journal.v[w.journal.n - 1].seq, 3);
        world_close(&w);
    }
}

/* -- committing before a command that takes long has ended ---------------------------------------- */

struct splitter {
    struct world *w;
    struct flaky *f;
    i64 clock_us;
    u32 commits; /* how many there were when the script was interrupted */
    bool may, kept, settled;
};

static i64 a_moment_later(void *owner) { return ((struct splitter *)owner)->clock_us += 10000; }

static void split_and_kill(void *owner)
{
    struct splitter *x = owner;
    struct region *r = &x->w->region;
    x->may = region_may_split(r);
    if (x->may && !region_settled(r)) {
        x->kept = region_commit(r);
        region_split(r, x->kept);
    }
    x->commits = x->f->commits;
    x->settled = region_settled(r);
    r->node->script->killed = true;
}

static struct splitter interrupt_after(struct world *w, struct flaky *f, const char *before, const char *script)
{
    struct splitter x = {.w = w, .f = f};
    w->node.owner = &x;
    w->node.host.now_us = a_moment_later;
    w->node.host.serve = split_and_kill;
    w->node.host.busy_after_ms = 1;
    region_begin(&w->region, T0 + 10);
    run_all(w, before);
    run(w, script);
    return x;
}

static void what_came_before_a_script_can_be_committed(void **state)
{
    (void)state;
    struct world w;
    struct flaky f;
    open_flaky(&w, &f);
    journal_detach(&w.region.journal, &w.journal.sink);
    struct splitter x = interrupt_after(&w, &f, "SET k v", "EVAL \"redis.call('GET','k') while true do end\" 0");
    assert_true(x.may && x.kept && x.settled);
    assert_int_equal(x.commits, 1);
    assert_int_equal(f.committed_seq, 1);
    assert_string_equal(run(&w, "INCR n"), "1"); /* the tick continues */
    assert_true(region_commit(&w.region));
    assert_int_equal(f.committed_seq, 2);

    x = interrupt_after(&w, &f, "SET k w", "EVAL \"redis.call('SET','k','x') while true do end\" 0");
    assert_false(x.may || x.settled); /* the script's change can't be told from the other one */
    assert_int_equal(x.commits, 2);
    assert_true(region_commit(&w.region));

    x = interrupt_after(&w, &f, "GET k", "EVAL \"while true do end\" 0");
    assert_true(x.may && x.settled);
    assert_int_equal(x.commits, 3); /* there was nothing to commit */

    f.fail_commit = true;
    x = interrupt_after(&w, &f, "SET k z", "EVAL \"while true do end\" 0");
    assert_true(x.may && !x.kept && !x.settled);
    f.fail_commit = false;
    assert_string_equal(run(&w, "SET k z"), io_error);
    assert_false(region_commit(&w.region)); /* the rest of the tick goes with it */
    region_begin(&w.region, T0 + 11);
    assert_string_equal(run(&w, "SET k z"), "OK");
    assert_true(region_commit(&w.region));
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unfit_requests_are_refused),
        cmocka_unit_test(outcomes_tell_what_happened),
        cmocka_unit_test(strangers_may_do_little),
        cmocka_unit_test(no_memory_no_growth),
        cmocka_unit_test(writes_may_be_refused),
        cmocka_unit_test(same_seed_same_answers),
        cmocka_unit_test(clients_may_leave_the_access_clock_alone),
        cmocka_unit_test(failures_are_told),
        cmocka_unit_test(a_failed_write_dooms_its_tick),
        cmocka_unit_test(a_failure_replaces_only_its_own_reply),
        cmocka_unit_test(a_tick_commits_once),
        cmocka_unit_test(without_sinks_there_are_no_records),
        cmocka_unit_test(changes_unsettle),
        cmocka_unit_test(a_failed_commit_leaves_no_gap),
        cmocka_unit_test(what_came_before_a_script_can_be_committed),
    };
    return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
