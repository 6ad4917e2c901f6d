/* Fuzzes loading: RDB files, and payloads of RESTORE. The first byte says which, and how:
 *
 *   bit 0  a payload (sealed here with its checksum), otherwise a file
 *   bit 1  streams, modules and functions may be left out, otherwise they are errors
 *   bit 2  dead keys and fields are kept
 *   bit 3  keys may come again
 *   bit 4  the input comes in odd portions, and its size is not known
 *
 * Whatever comes gets an error or is loaded. What is loaded has an engine whose counts agree, is the
 * same after being saved and loaded again, and a value that loads ends where passing over it ends. */
#include "../exec/dataset.h"
#include "../exec/harness.h"
#include "../unit/rdb_helpers.h"
#include "base/crc64.h"

#define FUZZ_DBS 3
#define DEEP 20000 /* files beyond are only loaded */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_equal(const struct buf *a, const struct buf *b)
{
    CHECK(a->n == b->n && memcmp(a->p, b->p, a->n) == 0);
}

/* Saved and loaded again, the data are the same. */
static void check_round_trip(struct engine *e, i64 now_ms, enum rdb_field_ttls ttls)
{
    struct memory_sink sink;
    struct loading l = {0};
    struct buf before = {0}, after = {0};
    struct rdb_policy policy = loading_policy(&l);
    struct engine *twin = memory_engine_new(e->databases, 3);
    dataset_dump(e, now_ms, &before);
    memory_sink_init(&sink);
    save_to(&sink, e, now_ms, ttls, 700, 3000);
    CHECK(load_file(&l, twin, now_ms, buf_bytes(&sink.file), &policy, 0) == OK);
    dataset_dump(twin, now_ms, &after);
    must_equal(&before, &after);
    loading_release(&l);
    twin->ops->close(twin);
    buf_release(&sink.file);
    buf_release(&before);
    buf_release(&after);
}

static void fuzz_file(u8 how, bytes file)
{
    struct loading l = {0};
    struct rdb_policy policy = loading_policy(&l);
    struct engine *e = memory_engine_new(FUZZ_DBS, 1);
    policy.checksum = false;
    policy.skip_unsupported = how & 2;
    policy.load_dead = how & 4 ? loading_keep : NULL;
    policy.replace = how & 8;
    err result = load_file(&l, e, T0, file, &policy, how & 16 ? 1 + 2 * (u64)file.n : 0);
    CHECK(result == OK || (result == ERR_SYNTAX && l.loader.error[0]));
    CHECK(rdb_loader_offset(&l.loader) <= file.n);
    struct buf text = {0};
    dataset_dump(e, T0, &text); /* checks the counts, also of what came before an error */
    if (result == OK && file.n < DEEP)
        for (int ttls = 0; ttls < 2; ttls++) check_round_trip(e, T0, ttls);
    buf_release(&text);
    loading_release(&l);
    e->ops->close(e);
}

/* -- payloads ---------------------------------------------------------------------------------- */

static void seal(struct buf *payload, bytes body)
{
    u16 version = RDB_VERSION_MAX;
    buf_append_bytes(payload, body);
    buf_append(payload, &version, 2);
    u64 crc = crc64(0, buf_bytes(payload));
    buf_append(payload, &crc, 8);
}

static bool restore(struct world *w, const char *key, bytes payload)
{
    bytes argv[] = {BYTES_LIT("RESTORE"), bytes_str(key), BYTES_LIT("0"), payload, BYTES_LIT("REPLACE")};
    run_argv(w, 5, argv);
    return w->out.p[0] == '+';
}

static void check_skip(bytes body)
{
    struct rdb_in in;
    u8 type;
    rdb_in_memory(&in, body);
    CHECK(rdb_read_byte(&in, &type) && rdb_skip_value(&in, type) && rdb_at_end(&in));
    rdb_in_release(&in);
}

static void fuzz_payload(bytes body)
{
    struct world w;
    struct buf payload = {0}, before = {0}, after = {0};
    world_open_on(&w, memory_engine_new(FUZZ_DBS, 1));
    seal(&payload, body);
    run(&w, "RPUSH old a b");
    dataset_dump(w.region.eng, T0, &before);
    if (restore(&w, "old", buf_bytes(&payload))) {
        check_skip(body);
        if (body.n < DEEP)
            for (int ttls = 0; ttls < 2; ttls++) check_round_trip(w.region.eng, T0, ttls);
        bytes argv[] = {BYTES_LIT("DUMP"), BYTES_LIT("old")};
        run_argv(&w, 2, argv);
        if (w.out.p[1] != '-') { /* else it was dead on arrival */
            buf_clear(&payload);
            buf_append(&payload, strstr(w.out.p, "\r\n") + 2, (size_t)strtol(w.out.p + 1, NULL, 10));
            dataset_dump(w.region.eng, T0, &before);
            CHECK(restore(&w, "old", buf_bytes(&payload)));
            dataset_dump(w.region.eng, T0, &after);
            must_equal(&before, &after);
        }
    } else {
        dataset_dump(w.region.eng, T0, &after);
        must_equal(&before, &after);
    }
    buf_release(&payload);
    buf_release(&before);
    buf_release(&after);
    world_close(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    bytes input = bytes_of(data + 1, size - 1);
    if (data[0] & 1) fuzz_payload(input);
    else fuzz_file(data[0], input);
    return 0;
}
