/* The bytes of the rocks engine: the vectors of docs/format.md to the letter, then whatever comes to mind there and
 * back, in order, and cut short at every place. Slices that are read end where their memory does, so that
 * the sanitizer detects reads beyond. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/alloc.h"
#include "base/rand.h"
#include "engine/rocks/codec.h"

#define VERSION 0x0102030405060708ULL
#define BIG 65536

static u64 rng;

static u32 below(u32 n) { return (u32)rand_below(&rng, n); }

static void assert_hex(bytes got, const char *want)
{
    struct buf hex = {0};
    for (size_t i = 0; i < got.n; i++) buf_printf(&hex, "%02x", (u8)got.p[i]);
    buf_append_char(&hex, '\0');
    assert_string_equal(hex.p, want);
    buf_release(&hex);
}

static void assert_bytes(bytes got, bytes want)
{
    assert_int_equal(got.n, want.n);
    if (want.n) assert_memory_equal(got.p, want.p, want.n);
}

/* A copy that ends where its memory ends. */
static bytes exact(bytes b)
{
    char *p = mem_alloc(b.n ? b.n : 1);
    if (b.n) memcpy(p, b.p, b.n);
    return bytes_of(p, b.n);
}

static void forget(bytes b) { mem_free((void *)b.p); }

/* -- the vectors of docs/format.md -------------------------------------------------------------- */

#define FOO "800000000000000180000000000000012f9600000003666f6f"
#define H "800000000000000180000000000000012dae0000000168"

static void assert_key(const char *key, const char *want)
{
    struct buf b = {0};
    codec_key(&b, 1, 1, bytes_str(key));
    assert_hex(buf_bytes(&b), want);
    buf_release(&b);
}

static void assert_meta(struct codec_meta m, const char *want)
{
    struct buf b = {0};
    codec_meta(&b, &m);
    assert_hex(buf_bytes(&b), want);
    buf_release(&b);
}

static void test_vectors_string(void **state)
{
    (void)state;
    assert_key("foo", FOO);
    struct codec_meta bar = {.type = TYPE_STRING, .payload = BYTES_LIT("bar")};
    assert_meta(bar, "810000000000000000626172");
    bar.deadline_ms = 1700000000000;
    assert_meta(bar, "810000018bcfe56800626172");

    struct buf key = {0};
    codec_key(&key, 1, 1, BYTES_LIT("foo"));
    buf_append_char(&key, CODEC_LEGACY);
    assert_hex(buf_bytes(&key), FOO "53");
    buf_release(&key);
    i64 deadline_ms = -1;
    bytes payload;
    assert_true(codec_legacy_read(BYTES_LIT("\0\0\0\0\0\0\0\0bar"), &deadline_ms, &payload));
    assert_int_equal(deadline_ms, 0);
    assert_bytes(payload, BYTES_LIT("bar"));
    assert_true(codec_legacy_read(BYTES_LIT("\0\0\x01\x8b\xcf\xe5\x68\0"), &deadline_ms, &payload));
    assert_int_equal(deadline_ms, 1700000000000);
    assert_int_equal(payload.n, 0);
}

static void assert_companion(struct codec_companion c, const char *want)
{
    struct buf b = {0};
    struct codec_companion back;
    codec_companion(&b, &c);
    assert_hex(buf_bytes(&b), want);
    assert_true(codec_companion_read(buf_bytes(&b), &back));
    assert_int_equal(back.kept, c.kept);
    assert_int_equal(back.version, c.version);
    assert_int_equal(back.size, c.size);
    assert_bytes(back.head, c.head);
    buf_release(&b);
}

static void test_vectors_companion(void **state)
{
    (void)state;
    struct codec_meta bar = {.type = TYPE_STRING, .companion = true, .payload = BYTES_LIT("bar")}, back;
    assert_meta(bar, "a10000000000000000626172");
    assert_true(codec_meta_read(BYTES_LIT("\xa1\0\0\0\0\0\0\0\0bar"), &back));
    assert_true(back.companion);
    struct codec_companion c = {.head = BYTES_LIT("dot")};
    assert_companion(c, "80646f74");
    c.version = VERSION;
    c.size = 1;
    assert_companion(c, "8201020304050607080000000000000001646f74");
    c.kept = true;
    assert_companion(c, "8301020304050607080000000000000001646f74");
    assert_false(codec_companion_read(BYTES_LIT(""), &c));
    assert_false(codec_companion_read(BYTES_LIT("\x01x"), &c));
    assert_false(codec_companion_read(BYTES_LIT("\x84x"), &c));
    assert_false(codec_companion_read(BYTES_LIT("\x82short"), &c));
}

static void test_vectors_collections(void **state)
{
    (void)state;
    struct buf b = {0};
    assert_key("h", H);
    struct codec_meta hash = {.type = TYPE_HASH, .version = VERSION, .size = 1};
    assert_meta(hash, "82000000000000000001020304050607080000000000000001");
    hash.field_deadlines = true;
    assert_meta(hash, "92000000000000000001020304050607080000000000000001");
    codec_key(&b, 1, 1, BYTES_LIT("h"));
    append_u64(&b, VERSION);
    buf_append_char(&b, 'f');
    assert_hex(buf_bytes(&b), H "010203040506070866");

    struct codec_meta list = {
        .type = TYPE_LIST, .version = VERSION, .size = 1,
        .head = CODEC_LIST_MIDDLE, .tail = CODEC_LIST_MIDDLE + 1,
    };
    assert_meta(list, "830000000000000000010203040506070800000000000000017fffffffffffffff8000000000000000");
    list.size = 2;
    list.head--;
    assert_meta(list, "830000000000000000010203040506070800000000000000027ffffffffffffffe8000000000000000");
    buf_clear(&b);
    append_u64(&b, VERSION);
    append_u64(&b, CODEC_LIST_MIDDLE);
    assert_hex(buf_bytes(&b), "01020304050607087fffffffffffffff");

    buf_clear(&b);
    codec_key(&b, 1, 1, BYTES_LIT("z"));
    append_u64(&b, VERSION);
    append_u64(&b, codec_score(1.5));
    buf_append_char(&b, 'm');
    assert_hex(buf_bytes(&b), "800000000000000180000000000000011fdd000000017a"
                              "0102030405060708bff80000000000006d");
    buf_release(&b);
}

/* The metadata of a stream ends with its head; its rows have a family of their own. */
static void test_vectors_stream(void **state)
{
    (void)state;
    struct buf b = {0};
    struct codec_meta m = {.type = TYPE_STREAM, .version = VERSION, .size = 1, .payload = BYTES_LIT("head")};
    assert_meta(m, "8600000000000000000102030405060708000000000000000168656164");
    m.deadline_ms = 1700000000000;
    m.size = 0;
    m.payload = BYTES_LIT("");
    assert_meta(m, "860000018bcfe5680001020304050607080000000000000000");
    codec_key(&b, 1, 1, BYTES_LIT("s"));
    append_u64(&b, VERSION);
    buf_append_str(&b, "row");
    assert_hex(buf_bytes(&b), "80000000000000018000000000000001" "0ef4" "0000000173" "0102030405060708" "726f77");
    buf_release(&b);
}

static void test_vectors_scores(void **state)
{
    (void)state;
    assert_true(codec_score(1.0) == 0xbff0000000000000);
    assert_true(codec_score(-1.0) == 0x400fffffffffffff);
    assert_true(codec_score(INFINITY) == 0xfff0000000000000);
    assert_true(codec_score(-INFINITY) == 0x000fffffffffffff);
    assert_true(codec_score(0.0) == 0x8000000000000000);
    assert_true(codec_score(-0.0) == 0x8000000000000000);
    assert_false(signbit(codec_score_read(codec_score(-0.0))));
}

static void test_vectors_due(void **state)
{
    (void)state;
    struct buf b = {0};
    codec_due(&b, &(struct codec_due){1, 1700000000000, 2, 1, 0x2f96, BYTES_LIT("foo")});
    assert_hex(buf_bytes(&b), "0000000000000001" "0000018bcfe56800" "02" "0000000000000001" "2f96" "666f6f");
    buf_release(&b);
}

static void test_vectors_raft_log(void **state)
{
    (void)state;
    char key[CODEC_LOG_KEY], head[CODEC_LOG_HEAD];
    u64 region, index, term, numbers[3];
    u8 type;
    enum codec_log_row row;
    bytes data;
    assert_hex(codec_log_key(key, 2, 258), "0000000000000002" "0000000000000102");
    assert_true(codec_log_key_read(bytes_of(key, 16), &region, &index, &row));
    assert_true(region == 2 && index == 258 && row == CODEC_LOG_ENTRY);
    assert_hex(codec_log_head(head, 7, 1), "0000000000000007" "01");
    assert_true(codec_log_entry_read(BYTES_LIT("\0\0\0\0\0\0\0\7\1foo"), &term, &type, &data));
    assert_true(term == 7 && type == 1);
    assert_bytes(data, BYTES_LIT("foo"));
    assert_hex(codec_log_state_key(key, 2, CODEC_LOG_HARD_STATE), "0000000000000002" "0000000000000000" "68");
    assert_hex(codec_log_state_key(key, 2, CODEC_LOG_POINT), "0000000000000002" "0000000000000000" "70");
    assert_true(codec_log_key_read(bytes_of(key, 17), &region, &index, &row));
    assert_true(region == 2 && index == 0 && row == CODEC_LOG_POINT);
    key[16] = 'x';
    assert_false(codec_log_key_read(bytes_of(key, 17), &region, &index, &row));
    assert_false(codec_log_key_read(bytes_of(key, 16), &region, &index, &row)); /* no entry has index 0 */
    assert_false(codec_log_key_read(bytes_of(key, 15), &region, &index, &row));
    assert_true(codec_log_numbers_read(BYTES_LIT("\0\0\0\0\0\0\1\2\0\0\0\0\0\0\0\7"), numbers, 2));
    assert_true(numbers[0] == 258 && numbers[1] == 7);
    assert_false(codec_log_numbers_read(BYTES_LIT("\0\0\0\0\0\0\1\2\0\0\0\0\0\0\0\7"), numbers, 3));
    assert_false(codec_log_entry_read(BYTES_LIT("\0\0\0\0\0\0\0\7"), &term, &type, &data));
    assert_false(codec_log_entry_read(BYTES_LIT("\0\0\0\0\0\0\0\0\1foo"), &term, &type, &data));
}

/* -- slots -------------------------------------------------------------------------- */

static u16 slow_crc(bytes b)
{
    u16 crc = 0;
    for (size_t i = 0; i < b.n; i++) {
        crc ^= (u16)((u8)b.p[i] << 8);
        for (int bit = 0; bit < 8; bit++) crc = (u16)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
    }
    return crc;
}

/* Redis's rule, in its words: "the substring between { and }, of the first occurrences, if not empty". */
static bytes slow_tag(bytes key)
{
    size_t open = 0, close;
    while (open < key.n && key.p[open] != '{') open++;
    if (open == key.n) return key;
    for (close = open + 1; close < key.n && key.p[close] != '}';) close++;
    if (close == key.n || close == open + 1) return key;
    return bytes_of(key.p + open + 1, close - open - 1);
}

static void test_slots(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        u16 slot;
    } known[] = {
        /* CLUSTER KEYSLOT of redis-server 7 */
        {"", 0}, {"123456789", 12739}, {"foo", 12182}, {"somekey", 11058}, {"foo{hash_tag}", 2515},
        {"bar{hash_tag}", 2515},
    };
    for (u32 i = 0; i < ARRAY_LEN(known); i++)
        assert_int_equal(codec_slot(bytes_str(known[i].key)), known[i].slot);

    bytes user = BYTES_LIT("user1000");
    assert_int_equal(codec_slot(BYTES_LIT("{user1000}.following")), codec_slot(user));
    assert_int_equal(codec_slot(BYTES_LIT("{user1000}")), codec_slot(user));
    assert_int_equal(codec_slot(BYTES_LIT("a{user1000}{other}")), codec_slot(user));
    assert_int_equal(codec_slot(BYTES_LIT("foo{{bar}}zap")), codec_slot(BYTES_LIT("{bar")));
    assert_int_equal(codec_slot(BYTES_LIT("}{user1000}")), codec_slot(user));
    static const char *whole[] = {"foo{}{bar}", "{}", "{", "}", "{x", "x}", "}{", "abc{", "{}x"};
    for (u32 i = 0; i < ARRAY_LEN(whole); i++)
        assert_int_equal(codec_slot(bytes_str(whole[i])), slow_crc(bytes_str(whole[i])) & 0x3FFF);
}

static void test_random_slots(void **state)
{
    (void)state;
    rng = 1;
    for (u32 round = 0; round < 200000; round++) {
        char text[40];
        size_t n = below(sizeof text + 1);
        bool braces = below(2);
        for (size_t i = 0; i < n; i++) text[i] = braces ? "{}ab"[below(4)] : (char)below(256);
        bytes key = bytes_of(text, n);
        assert_int_equal(codec_slot(key), slow_crc(slow_tag(key)) & 0x3FFF);
    }
}

/* -- keys there and back --------------------------------------------------------------- */

/* Empty, short, binary, all 0x00 or 0xff, and 64 KB. */
static bytes some_text(void)
{
    size_t n = below(8) ? below(20) : below(2) ? BIG : below(BIG);
    u32 kind = below(4);
    char *p = mem_alloc(n ? n : 1);
    for (size_t i = 0; i < n; i++) p[i] = (char)(kind == 0 ? 0 : kind == 1 ? 0xFF : below(256));
    return bytes_of(p, n);
}

static u64 some_number(void)
{
    static const u64 special[] = {0, 1, 2, INT64_MAX, 1ULL << 63, UINT64_MAX};
    return below(2) ? special[below(ARRAY_LEN(special))] : rand_next(&rng) >> below(64);
}

/* Every truncation of a short key; of a long one, those near its ends. */
static bool worth_cutting(size_t n, size_t total) { return n < 100 || total - n < 50; }

static void assert_key_cuts(bytes raw)
{
    struct codec_key k;
    for (size_t n = 0; n < raw.n; n++) {
        if (!worth_cutting(n, raw.n)) continue;
        bytes cut = exact(bytes_of(raw.p, n));
        assert_false(codec_key_read(cut, &k));
        forget(cut);
    }
}

static void test_keys(void **state)
{
    (void)state;
    rng = 2;
    for (u32 round = 0; round < 3000; round++) {
        struct buf b = {0};
        struct codec_key k;
        bytes key = some_text(), sub = some_text(), got;
        u64 region = some_number(), index = some_number(), version = some_number(), v;
        codec_index_prefix(&b, region, index);
        size_t prefix = b.n;
        codec_key(&b, region, index, key);
        assert_int_equal(b.n - prefix, CODEC_PREFIX_FIXED + key.n);
        assert_memory_equal(b.p, b.p + prefix, prefix);
        assert_key_cuts(bytes_of(b.p + prefix, b.n - prefix));

        append_u64(&b, version);
        buf_append_bytes(&b, sub);
        bytes raw = exact(bytes_of(b.p + prefix, b.n - prefix));
        assert_true(codec_key_read(raw, &k));
        assert_true(k.region == region && k.index == index);
        assert_int_equal(k.slot, codec_slot(key));
        assert_bytes(k.key, key);
        assert_true(codec_version_read(k.rest, &v, &got));
        assert_true(v == version);
        assert_bytes(got, sub);
        for (size_t n = 0; n < 8; n++) assert_false(codec_version_read(bytes_of(k.rest.p, n), &v, &got));
        forget(raw);
        forget(key);
        forget(sub);
        buf_release(&b);
    }
}

/* A length that lies: it must not be believed. */
static void test_lying_length(void **state)
{
    (void)state;
    struct codec_key k;
    struct buf b = {0};
    codec_key(&b, 1, 1, BYTES_LIT("abc"));
    static const u32 lengths[] = {4, 5, 100, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    for (u32 i = 0; i < ARRAY_LEN(lengths); i++) {
        put_u32(b.p + 18, lengths[i]);
        bytes raw = exact(buf_bytes(&b));
        assert_false(codec_key_read(raw, &k));
        forget(raw);
    }
    put_u32(b.p + 18, 2);
    assert_true(codec_key_read(buf_bytes(&b), &k));
    assert_bytes(k.key, BYTES_LIT("ab"));
    assert_bytes(k.rest, BYTES_LIT("c"));
    buf_release(&b);
}

static void test_after_prefix(void **state)
{
    (void)state;
    rng = 3;
    for (u32 round = 0; round < 2000; round++) {
        bytes prefix = some_text(), tail = some_text();
        struct buf after = {0}, longer = {0};
        buf_append_bytes(&after, prefix);
        codec_after_prefix(&after);
        buf_append_bytes(&longer, prefix);
        buf_append_bytes(&longer, tail);
        if (after.n) { /* nothing at all comes after 0xff … */
            assert_true(bytes_cmp(buf_bytes(&longer), buf_bytes(&after)) < 0);
            /* … and it is the smallest: one less begins with the prefix, or is before it. */
            bytes last = bytes_of(after.p, after.n);
            after.p[after.n - 1]--;
            assert_memory_equal(last.p, prefix.p, last.n);
            for (size_t i = last.n; i < prefix.n; i++) assert_int_equal((u8)prefix.p[i], 0xFF);
        } else {
            for (size_t i = 0; i < prefix.n; i++) assert_int_equal((u8)prefix.p[i], 0xFF);
        }
        forget(prefix);
        forget(tail);
        buf_release(&after);
        buf_release(&longer);
    }
}

/* -- metadata there and back ---------------------------------------------------------------- */

static void assert_same_meta(const struct codec_meta *a, const struct codec_meta *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->field_deadlines, b->field_deadlines);
    assert_true(a->deadline_ms == b->deadline_ms);
    assert_true(a->version == b->version && a->size == b->size);
    assert_true(a->head == b->head && a->tail == b->tail);
    assert_bytes(a->payload, b->payload);
}

static struct codec_meta some_meta(bytes payload)
{
    struct codec_meta m = {.type = (enum value_type)(1 + below(6)), .deadline_ms = (i64)(some_number() >> 1)};
    if (m.type == TYPE_STRING) {
        m.payload = payload;
        return m;
    }
    m.field_deadlines = m.type == TYPE_HASH && below(2);
    m.version = some_number();
    m.size = some_number();
    if (m.type == TYPE_LIST) m.head = some_number();
    if (m.type == TYPE_LIST) m.tail = some_number();
    if (m.type == TYPE_STREAM) m.payload = bytes_of(payload.p, MIN(payload.n, ROWS_HEAD_MAX));
    return m;
}

static void test_metadata(void **state)
{
    (void)state;
    rng = 4;
    for (u32 round = 0; round < 5000; round++) {
        struct buf b = {0};
        struct codec_meta got;
        bytes payload = some_text();
        struct codec_meta m = some_meta(payload);
        buf_append_str(&b, "x"); /* it appends */
        codec_meta(&b, &m);
        bytes raw = exact(bytes_of(b.p + 1, b.n - 1));
        assert_true(codec_meta_read(raw, &got));
        assert_same_meta(&got, &m);

        size_t fixed = m.type == TYPE_STRING ? 9 : m.type == TYPE_STREAM ? 25 : raw.n;
        for (size_t n = 0; n < fixed; n++) {
            bytes cut = exact(bytes_of(raw.p, n));
            assert_false(codec_meta_read(cut, &got));
            forget(cut);
        }
        buf_append_char(&b, 'x'); /* and nothing may follow, but for a string's value, or a head */
        bool more = m.type == TYPE_STRING || (m.type == TYPE_STREAM && m.payload.n < ROWS_HEAD_MAX);
        assert_int_equal(codec_meta_read(bytes_of(b.p + 1, b.n - 1), &got), more);
        forget(raw);
        forget(payload);
        buf_release(&b);
    }
}

static void test_flags(void **state)
{
    (void)state;
    char raw[41] = {0};
    for (u32 flags = 0; flags < 256; flags++) {
        raw[0] = (char)flags;
        u32 type = flags & 15;
        size_t n = type == TYPE_LIST ? 41 : 25;
        struct codec_meta m;
        u32 plain = flags & ~0x20u; /* any key may have a companion */
        bool good = (plain >= 0x81 && plain <= 0x86) || plain == 0x92;
        assert_int_equal(codec_meta_read(bytes_of(raw, n), &m), good);
        if (good) assert_int_equal(m.type, type);
    }
}

static void test_legacy_cuts(void **state)
{
    (void)state;
    i64 deadline_ms;
    bytes payload;
    for (size_t n = 0; n < 8; n++) {
        bytes cut = exact(bytes_of("\0\0\0\0\0\0\0", n));
        assert_false(codec_legacy_read(cut, &deadline_ms, &payload));
        forget(cut);
    }
}

/* -- doubles ---------------------------------------------------------------------------------- */

static double from_bits(u64 bits)
{
    double d;
    memcpy(&d, &bits, 8);
    return d;
}

/* Every class: zeros, subnormals, normals, infinities, small integers, any bits. */
static double some_double(void)
{
    u64 sign = (u64)below(2) << 63, any = rand_next(&rng);
    double d;
    switch (below(8)) {
    case 0: return from_bits(sign);                              /* zero */
    case 1: return from_bits(sign | 1);                          /* the smallest */
    case 2: return from_bits(sign | (any >> 12));                /* subnormal */
    case 3: return from_bits(sign | 0x7fefffffffffffff);         /* the largest */
    case 4: return from_bits(sign | 0x7ff0000000000000);         /* infinity */
    case 5: return (double)(i64)below(100) - 50;
    case 6: return from_bits(sign | 0x0010000000000000 | below(3)); /* the smallest normals */
    default:
        d = from_bits(any);
        return isnan(d) ? 1.0 : d;
    }
}

static void test_doubles(void **state)
{
    (void)state;
    rng = 5;
    for (u32 round = 0; round < 2000000; round++) {
        double a = some_double(), beside = nextafter(a, below(2) ? INFINITY : -INFINITY);
        double b = below(4) ? some_double() : beside;
        u64 x = codec_score(a), y = codec_score(b);
        assert_true(a < b ? x < y : a > b ? x > y : x == y);
        double back = codec_score_read(x);
        u64 want, got;
        if (a == 0) a = 0;
        memcpy(&want, &a, 8);
        memcpy(&got, &back, 8);
        assert_true(got == want);
    }
}

/* -- rows of `deadline` --------------------------------------------------------------------------- */

static int cmp_numbers(u64 a, u64 b) { return (a > b) - (a < b); }

static int cmp_due(const struct codec_due *a, const struct codec_due *b)
{
    int c = cmp_numbers(a->region, b->region);
    if (!c) c = cmp_numbers((u64)a->due_ms, (u64)b->due_ms);
    if (!c) c = cmp_numbers(a->level, b->level);
    if (!c) c = cmp_numbers(a->index, b->index);
    if (!c) c = cmp_numbers(a->slot, b->slot);
    if (!c) c = bytes_cmp(a->key, b->key);
    return (c > 0) - (c < 0);
}

static struct codec_due some_due(bytes key)
{
    return (struct codec_due){
        .region = 1 + below(2), .due_ms = (i64)(below(2) ? below(3) : some_number() >> 1),
        .level = (u8)below(10), .index = 1 + below(3), .slot = (u16)below(3), .key = key,
    };
}

static void test_due(void **state)
{
    (void)state;
    rng = 6;
    for (u32 round = 0; round < 20000; round++) {
        struct buf a = {0}, b = {0};
        bytes key_a = some_text(), key_b = some_text();
        struct codec_due x = some_due(key_a), y = some_due(key_b), got;
        if (below(2)) y = (struct codec_due){x.region, x.due_ms, x.level, x.index, y.slot, key_b};
        codec_due(&a, &x);
        codec_due(&b, &y);
        int c = bytes_cmp(buf_bytes(&a), buf_bytes(&b));
        assert_int_equal((c > 0) - (c < 0), cmp_due(&x, &y));
        bytes raw = exact(buf_bytes(&a));
        assert_true(codec_due_read(raw, &got));
        assert_int_equal(cmp_due(&got, &x), 0);
        for (size_t n = 0; n < 27; n++) {
            bytes cut = exact(bytes_of(raw.p, n));
            assert_false(codec_due_read(cut, &got));
            forget(cut);
        }
        forget(raw);
        forget(key_a);
        forget(key_b);
        buf_release(&a);
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors_string),
        cmocka_unit_test(test_vectors_companion),
        cmocka_unit_test(test_vectors_collections),
        cmocka_unit_test(test_vectors_stream),
        cmocka_unit_test(test_vectors_scores),
        cmocka_unit_test(test_vectors_due),
        cmocka_unit_test(test_vectors_raft_log),
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_random_slots),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_lying_length),
        cmocka_unit_test(test_after_prefix),
        cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_legacy_cuts),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
