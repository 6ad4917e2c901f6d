/* Fuzzes the commands: a stream of requests runs in a fresh region whose clock
 * the stream itself drives. After it
 *
 * - every reply was exactly one well-formed RESP value,
 * - the engine's counts agree with what is there (dataset.h checks),
 * - a follower and a replica that replayed the journal hold the same data.
 *
 * Besides commands the stream may hold
 *
 *   TICK ms      moves the clock, also back
 *   STEP n       n steps of the active cycle
 *   SOURCE 0|1   of the cycle: index, samples
 *   EVICT n      memory is short for the next command, under policy n
 *   PROTO 2|3    of the replies
 *
 * A mutator of its own adds whole commands to the stream: bytes alone would
 * rarely find their way past the argument checks. */
#include "../exec/dataset.h"
#include "../exec/generate.h"
#include "../exec/harness.h"
#include "script/script.h"
#include "resp/command.h"

#define FUZZ_DBS 3
#define MAX_COMMANDS 300
#define MAX_STRING 4096
#define MAX_REPEATS 1000
#define LAST_MS ((i64)1 << 42)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

struct fuzz {
    struct world primary, plain, replica;
    size_t applied;
    i64 now_ms;
    i64 script_us; /* a clock that advances at each read */
};

/* -- replies ----------------------------------------------------------------------------- */

static size_t elements(char type, long long n)
{
    if (n < 0) n = 0;
    return (size_t)(type == '%' || type == '|' ? 2 * n : n);
}

/* The end of the value that starts at p; anything malformed is a failure. */
static const char *reply_end(const char *p, const char *end)
{
    const char *nl = memchr(p, '\n', (size_t)(end - p));
    CHECK(nl && nl > p + 1 && nl[-1] == '\r' && !memchr(p, '\r', (size_t)(nl - 1 - p)));
    bytes digits = bytes_of(p + 1, (size_t)(nl - p - 2));
    i64 n = 0;
    switch (*p) {
    case '+':
    case '-':
    case ',':
    case '(': return nl + 1;
    case '_': CHECK(digits.n == 0); return nl + 1;
    case '#': CHECK(digits.n == 1 && (*digits.p == 't' || *digits.p == 'f')); return nl + 1;
    case ':': CHECK(num_parse_i64(digits, &n)); return nl + 1;
    case '$':
    case '=':
        CHECK(num_parse_i64(digits, &n) && n >= -1);
        if (n < 0) return nl + 1;
        CHECK(end - nl - 1 >= n + 2 && nl[1 + n] == '\r' && nl[2 + n] == '\n');
        return nl + 1 + n + 2;
    case '*':
    case '~':
    case '%':
    case '>':
    case '|': {
        CHECK(num_parse_i64(digits, &n) && n >= -1);
        const char *at = nl + 1;
        for (size_t i = elements(*p, n); i > 0; i--) at = reply_end(at, end);
        return at;
    }
    default: CHECK(!"a type of reply"); return NULL;
    }
}

static void check_reply(const struct buf *out)
{
    CHECK(out->n && reply_end(out->p, out->p + out->n) == out->p + out->n);
}

/* -- which requests to run ------------------------------------------------------------------ */

static const struct command *command_of(int argc, const bytes *argv)
{
    const struct command *cmd = command_find(argv[0]), *sub = NULL;
    if (cmd && cmd->sub_count && argc > 1) sub = command_find_sub(cmd, argv[1]);
    return sub ? sub : cmd;
}

/* There is no server here and no connection, so commands about them are left out. */
static bool needs_server(const struct command *cmd)
{
    static const char *const fine[] = {
        "dbsize", "flushall", "flushdb", "swapdb", "select", "echo", "ping"};
    if (strcmp(cmd->group, "server") != 0 && strcmp(cmd->group, "connection") != 0) return false;
    for (size_t i = 0; i < ARRAY_LEN(fine); i++)
        if (strcmp(cmd->name, fine[i]) == 0) return false;
    return strncmp(cmd->name, "expiry", 6) != 0 && strncmp(cmd->name, "command", 7) != 0;
}

/* Legal, but too much for a fuzzer: an element drawn again and again. */
static bool is_endless(const struct command *cmd, int argc, const bytes *argv)
{
    i64 n;
    return strstr(cmd->name, "rand") && argc > 2 && num_parse_i64(argv[2], &n) && n < -MAX_REPEATS;
}

/* -- running ----------------------------------------------------------------------------- */

static i64 number_arg(int argc, const bytes *argv, i64 least, i64 most)
{
    i64 n = 0;
    if (argc > 1 && !num_parse_i64(argv[1], &n)) n = 0;
    return MIN(MAX(n, least), most);
}

static void follow(struct fuzz *f)
{
    const struct recorder *j = &f->primary.journal;
    for (; f->applied < j->n; f->applied++) {
        const struct journal_record *record = &j->v[f->applied];
        CHECK(record->seq == f->applied + 1);
        CHECK(region_apply(&f->plain.region, &f->plain.session, NULL, record) == OK);
        CHECK(region_apply(&f->replica.region, &f->replica.session, NULL, record) == OK);
    }
}

static void tick(struct fuzz *f, i64 by_ms)
{
    f->now_ms = MIN(MAX(f->now_ms + by_ms, 1), LAST_MS);
    if (!region_commit(&f->primary.region)) __builtin_trap();
    region_begin(&f->primary.region, f->now_ms);
}

static void set_policy(struct world *w, i64 n)
{
    static const enum maxmemory_policy policies[] = {
        EVICT_NONE, EVICT_VOLATILE_LFU, EVICT_VOLATILE_LRU, EVICT_VOLATILE_TTL,
        EVICT_VOLATILE_RANDOM, EVICT_ALLKEYS_LFU, EVICT_ALLKEYS_LRU, EVICT_ALLKEYS_RANDOM,
    };
    w->region.ks.policy = policies[n];
    w->node.evictor.maxmemory = 1;
}

static bool steer(struct fuzz *f, int argc, const bytes *argv)
{
    struct world *w = &f->primary;
    if (bytes_is(argv[0], "tick")) tick(f, number_arg(argc, argv, -LAST_MS, LAST_MS));
    else if (bytes_is(argv[0], "step"))
        for (i64 n = number_arg(argc, argv, 1, 100); n > 0; n--) region_expire_step(&w->region);
    else if (bytes_is(argv[0], "source"))
        w->region.cycle.source = number_arg(argc, argv, 0, 1) ? EXPIRE_SAMPLE : EXPIRE_INDEX;
    else if (bytes_is(argv[0], "evict")) set_policy(w, number_arg(argc, argv, 0, 7));
    else if (bytes_is(argv[0], "proto")) w->session.proto = (u8)number_arg(argc, argv, 2, 3);
    else return false;
    return true;
}

static void run_request(struct fuzz *f, int argc, bytes *argv)
{
    struct world *w = &f->primary;
    if (!steer(f, argc, argv)) {
        const struct command *cmd = command_of(argc, argv);
        if (cmd && (needs_server(cmd) || is_endless(cmd, argc, argv))) return;
        run_argv(w, argc, argv);
        check_reply(&w->out);
        w->node.evictor.maxmemory = 0;
    }
    follow(f);
}

/* Runs the requests that parse; after one that does not, continues with the next line. */
static void run_stream(struct fuzz *f, bytes in)
{
    struct request_limits limits = {.max_bulk = MAX_STRING};
    struct request_parser p;
    struct buf space = {0};
    request_parser_init(&p);
    for (u32 n = 0; in.n && n < MAX_COMMANDS; n++) {
        size_t used = 0;
        err e = request_parse(&p, &limits, in, &used);
        if (e != OK) {
            const char *nl = memchr(in.p, '\n', in.n);
            if (!nl) break;
            used = (size_t)(nl - in.p) + 1;
            request_parser_release(&p);
        } else if (p.argc) {
            buf_clear(&space);
            bytes *argv = (bytes *)(void *)buf_reserve(&space, p.argc * sizeof *argv);
            for (u32 i = 0; i < p.argc; i++) argv[i] = request_arg(&p, in.p, i);
            run_request(f, (int)p.argc, argv);
        }
        in = bytes_of(in.p + used, in.n - used);
    }
    buf_release(&space);
    request_parser_release(&p);
}

static void compare(struct fuzz *f, struct world *follower)
{
    struct buf ours = {0}, theirs = {0};
    dataset_dump(f->primary.region.eng, now_of(&f->primary), &ours);
    dataset_dump(follower->region.eng, now_of(&f->primary), &theirs);
    CHECK(bytes_eq(buf_bytes(&ours), buf_bytes(&theirs)));
    buf_release(&ours);
    buf_release(&theirs);
}

static void open_one(struct world *w, bool recorded)
{
    world_open_on(w, memory_engine_new(FUZZ_DBS, 7));
    struct engine_limits *l = &w->region.eng->limits;
    l->hash_max_listpack_entries = l->zset_max_listpack_entries = l->set_max_intset_entries = 4;
    w->region.ks.max_string = MAX_STRING;
    if (!recorded) journal_detach(&w->region.journal, &w->journal.sink);
}

/* -- scripts: none runs for long, and none takes much --------------------------------------------- */

static i64 script_clock(void *owner) { return ((struct fuzz *)owner)->script_us += 1000; }
static void end_script(void *owner) { ((struct fuzz *)owner)->primary.node.script->killed = true; }

static void bound_scripts(struct fuzz *f)
{
    struct region *r = &f->primary.region;
    r->owner = f;
    r->host = (struct script_host){
        .now_us = script_clock, .serve = end_script, .busy_after_ms = 20, .memory = 4u << 20,
    };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz f = {.now_ms = T0};
    open_one(&f.primary, true);
    bound_scripts(&f);
    open_one(&f.plain, false);
    open_one(&f.replica, false);
    f.replica.region.mode = EXPIRY_PAUSED;
    run_stream(&f, bytes_of(data, size));

    struct buf everything = {0};
    dataset_dump(f.primary.region.eng, 0, &everything);
    buf_release(&everything);
    compare(&f, &f.plain);
    compare(&f, &f.replica);
    world_close(&f.primary);
    world_close(&f.plain);
    world_close(&f.replica);
    return 0;
}

/* -- mutating ---------------------------------------------------------------------------- */

/* A random command, or something that moves the clock. */
static void random_request(struct gen *g, struct buf *out)
{
    static const char *const steering[] = {
        "STEP 3\n",  "SOURCE 1\n",   "EVICT 6\n",     "EVICT 3\n",
        "PROTO 3\n", "TICK -5000\n", "TICK 100000\n",
    };
    switch (gen_below(g, 8)) {
    case 0: buf_append_str(out, steering[gen_below(g, ARRAY_LEN(steering))]); break;
    case 1: buf_printf(out, "TICK %d\n", (int)gen_below(g, 3000)); break;
    default:
        gen_next(g);
        resp_write_command(out, g->argc, g->argv);
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    struct gen g = {.rng = seed, .now_ms = T0, .databases = FUZZ_DBS};
    struct buf more = {0};
    if (gen_below(&g, 3) == 0) return LLVMFuzzerMutate(data, size, max_size);
    for (u64 n = 1 + gen_below(&g, 8); n > 0; n--) random_request(&g, &more);
    if (more.n > max_size - size) {
        size = LLVMFuzzerMutate(data, size, max_size);
    } else if (gen_below(&g, 4)) {
        memcpy(data + size, more.p, more.n);
        size += more.n;
    } else {
        memmove(data + more.n, data, size);
        memcpy(data, more.p, more.n);
        size += more.n;
    }
    gen_release(&g);
    buf_release(&more);
    return size;
}
