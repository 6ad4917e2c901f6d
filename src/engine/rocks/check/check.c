/* The offline checker: opens the database, walks through it and reports what it found.
 *
 * Where part of a family can't be read (a damaged file), the walk continues after it, at the next slot;
 * counts are then meaningless and not compared. */
#include <stdio.h>

#include "base/alloc.h"
#include "engine/rocks/check/check.h"
#include "engine/rocks/rk.h"
#include "engine/rocks/store/store_folder.h"
#include "engine/rocks/wal/wal_verify.h"

#define PROBLEMS_SHOWN 100
#define NAME_SHOWN 128       /* bytes of a long name */
#define PROGRESS_ROWS 1000000
#define SLOTS 16384
#define DATABASES_LIKELY 16

/* -- telling ------------------------------------------------------------------------------------ */

void check_quote(struct buf *out, bytes name)
{
    buf_append_char(out, '"');
    for (size_t i = 0; i < MIN(name.n, NAME_SHOWN); i++) {
        u8 ch = (u8)name.p[i];
        if (ch == '"' || ch == '\\') buf_printf(out, "\\%c", ch);
        else if (ch >= ' ' && ch < 127) buf_append_char(out, (char)ch);
        else buf_printf(out, "\\x%02x", ch);
    }
    buf_append_char(out, '"');
    if (name.n > NAME_SHOWN) buf_printf(out, "… (%zu bytes)", name.n);
}

bool check_number(const struct check *c, u64 index, u32 *number)
{
    const struct check_index *swapped = (const void *)c->indexes.p;
    bool first = !(index & CODEC_STAGING); /* may be the first index of a database */
    for (size_t i = 0; i < c->indexes.n / sizeof *swapped; i++) {
        first = first && (u64)swapped[i].number + 1 != index;
        *number = swapped[i].number;
        if (swapped[i].index == index) return true;
    }
    *number = (u32)(index - 1);
    return first;
}

const char *check_database(const struct check *c, u64 index, char text[CHECK_DB_TEXT])
{
    u32 number;
    if (!check_number(c, index, &number)) return "(staging)";
    snprintf(text, CHECK_DB_TEXT, "%u", number);
    return text;
}

const char *check_family(enum family f)
{
    static const char *const names[CHECK_LANES] = {
        [FAM_META] = "redis_metadata", [FAM_DATA] = "data", [FAM_SCORE] = "redis_zset_score",
        [FAM_RANK] = "zset_rank", [FAM_FIELD] = "field_deadline", [FAM_STREAM] = "redis_stream",
        [FAM_COMPANION] = "companion",
    };
    return names[f];
}

static const char *check_type_name(enum value_type type)
{
    static const char *const names[] = {"key", "string", "hash", "list", "set", "sorted set", "stream"};
    return names[type];
}

void check_problem(struct check *c, const struct check_key *k, const char *fmt, ...)
{
    struct buf line = {0};
    char db[CHECK_DB_TEXT];
    va_list ap;
    if (++c->problems > PROBLEMS_SHOWN) return;
    buf_append_str(&line, "PROBLEM: ");
    if (k) {
        buf_printf(&line, "database %s, %s ", check_database(c, k->index, db),
                   check_type_name(k->found ? k->m.type : TYPE_NONE));
        check_quote(&line, k->key);
        buf_append_str(&line, ": ");
    }
    va_start(ap, fmt);
    buf_vprintf(&line, fmt, ap);
    va_end(ap);
    printf("%.*s\n", (int)line.n, line.p);
    if (c->problems == PROBLEMS_SHOWN) puts("(further problems are counted only)");
    buf_release(&line);
}

static void print_elements(const struct check *c, enum value_type type, const char *what)
{
    if (c->keys[type])
        printf("  %-16s %llu, with %llu %s\n", what, LLU(c->keys[type]),
               LLU(c->elements[type]), type == TYPE_HASH ? "fields" :
               type == TYPE_LIST ? "elements" : type == TYPE_STREAM ? "rows" : "members");
}

static void print_some(const char *what, u64 n)
{
    if (n) printf("  %-16s %llu\n", what, LLU(n));
}

static void print_summary(const struct check *c)
{
    u64 keys = 0, orphans = 0;
    for (u32 i = 0; i < ARRAY_LEN(c->keys); i++) keys += c->keys[i];
    for (u32 i = 0; i < CHECK_LANES; i++) orphans += c->orphans[i];
    printf("  %-16s %llu\n", "keys", LLU(keys));
    print_some("strings", c->keys[TYPE_STRING]);
    print_elements(c, TYPE_HASH, "hashes");
    print_elements(c, TYPE_LIST, "lists");
    print_elements(c, TYPE_SET, "sets");
    print_elements(c, TYPE_ZSET, "sorted sets");
    print_elements(c, TYPE_STREAM, "streams");
    print_some("old strings", c->legacy_strings);
    if (c->staging_keys)
        printf("  %-16s %llu keys of data that was not completely loaded: they go at the next start\n",
               "spare", LLU(c->staging_keys));
    if (c->with_deadline)
        printf("  %-16s %llu keys, of which %llu have passed it\n", "with a deadline",
               LLU(c->with_deadline), LLU(c->dead));
    print_some("field deadlines", c->field_deadlines);
    if (c->companions)
        printf("  %-16s %llu, with %llu rows; %llu stay without their key\n", "companions",
               LLU(c->companions), LLU(c->companion_rows), LLU(c->kept.n));
    if (c->made_here && !c->damaged && !c->due_damaged && c->due_rows)
        printf("  %-16s %llu, of which %llu are out of date\n", "due references", LLU(c->due_rows),
               LLU(c->due_rows - MIN(c->due_used, c->due_rows)));
    if (c->log_regions)
        printf("  %-16s %llu entries, of %llu regions\n", "Raft log", LLU(c->log_entries),
               LLU(c->log_regions));
    if (c->emptied)
        printf("  %-16s %llu dead keys, whose values compactions have dropped\n", "emptied", LLU(c->emptied));
    printf("  %-16s %llu rows, which nobody can read and compactions will drop\n", "orphans",
           LLU(orphans));
    printf("  %-16s applied %llu, last version %llu\n", "sequence", LLU(c->applied),
           LLU(c->last_version));
    if (!c->made_here && !c->damaged)
        puts("Mayfly has not written to this database yet: nothing is counted or filed.");
    if (c->problems) printf("%llu problem%s found.\n", LLU(c->problems), c->problems > 1 ? "s" : "");
    else puts("Everything agrees.");
}

/* -- lanes ----------------------------------------------------------------------------------------- */

bool check_row(struct check *c, const struct check_key *k, enum family f, bytes *rest)
{
    if (!store_valid(c->lane[f])) return false;
    bytes raw = store_key(c->lane[f]);
    if (raw.n < k->p.n || memcmp(raw.p, k->p.p, k->p.n) != 0) return false;
    *rest = bytes_of(raw.p + k->p.n, raw.n - k->p.n);
    return true;
}

static void show_progress(const struct check *c)
{
    struct codec_key at;
    char db[CHECK_DB_TEXT];
    if (store_valid(c->lane[FAM_DATA]) && codec_key_read(store_key(c->lane[FAM_DATA]), &at))
        fprintf(stderr, "checked %llu million rows, at slot %u of database %s\n",
                LLU(c->rows / PROGRESS_ROWS), at.slot, check_database(c, at.index, db));
    else fprintf(stderr, "checked %llu million rows\n", LLU(c->rows / PROGRESS_ROWS));
}

void check_next(struct check *c, enum family f)
{
    store_next(c->lane[f]);
    if (++c->rows % PROGRESS_ROWS == 0) show_progress(c);
}

/* The lane with the smallest key; -1: all are at their end. */
static int foremost(const struct check *c)
{
    int first = -1;
    for (int f = 0; f < CHECK_LANES; f++) {
        if (!store_valid(c->lane[f])) continue;
        if (first < 0 || bytes_cmp(store_key(c->lane[f]), store_key(c->lane[first])) < 0) first = f;
    }
    return first;
}

static void open_lanes(struct check *c, bytes from)
{
    for (int f = 0; f < CHECK_LANES; f++) {
        if (c->lane[f]) store_iter_done(c->lane[f]);
        c->lane[f] = store_iter(c->session, (enum family)f, (bytes){0}, (bytes){0}, STORE_ONCE);
        if (from.n) store_seek(c->lane[f], from);
        else store_seek_first(c->lane[f]);
    }
}

/* -- damage ------------------------------------------------------------------------------------------ */

static u64 order_of(u64 index) { return index ^ CODEC_STAGING; } /* in P */

/* The next index, in the order of P, that may have keys: a counted one, or one that a database without counts
 * (made by another program) is likely to have. CODEC_STAGING, which sorts before all others and is never
 * used: there is none. */
static u64 next_index(const struct check *c, u64 index)
{
    const struct check_db *v = (const void *)c->dbs.p;
    u64 likely = (index & CODEC_STAGING) ? 1 : index + 1;
    u64 next = likely <= DATABASES_LIKELY ? likely : CODEC_STAGING;
    for (size_t i = 0; i < c->dbs.n / sizeof *v; i++) {
        bool nearer = next == CODEC_STAGING || order_of(v[i].index) < order_of(next);
        if (nearer && order_of(v[i].index) > order_of(index)) next = v[i].index;
    }
    return next;
}

/* Moves all lanes to the next slot, or further, until everything can be read again. The steps grow: one slot
 * is usually more than what is damaged, but in a small database a damaged file may hold most of them. `at` is
 * the position of the walk, and is updated. False: the end. */
static bool skip_damage(struct check *c, struct buf *at)
{
    u64 index = at->n < 16 ? next_index(c, CODEC_STAGING) : order_of(get_u64(at->p + 8)), step = 1;
    u64 slot = at->n < 18 ? 0 : get_u16(at->p + 16), first = slot, first_index = index, last = index;
    char from[CHECK_DB_TEXT], to[CHECK_DB_TEXT];
    c->damaged = true;
    while (c->failed && index != CODEC_STAGING) {
        slot += step;
        step = MIN(2 * step, SLOTS / 16);
        if (slot >= SLOTS) {
            slot = 0;
            last = index;
            index = next_index(c, index);
        }
        if (index == CODEC_STAGING) break;
        c->failed = false;
        buf_clear(at);
        codec_index_prefix(at, CHECK_PREFIX, index);
        put_u16(buf_reserve(at, 2), (u16)slot);
        at->n += 2;
        open_lanes(c, buf_bytes(at));
    }
    check_problem(c, NULL,
                  "a file is damaged: what lies between slot %llu of database %s and slot %llu of "
                  "database %s can't be read, and was skipped",
                  LLU(first), check_database(c, first_index, from), LLU(slot),
                  check_database(c, index == CODEC_STAGING ? last : index, to));
    return !c->failed;
}

/* -- the walk ------------------------------------------------------------------------------------------ */

static void check_foreign(struct check *c, int f, const char *what)
{
    struct buf name = {0};
    check_quote(&name, store_key(c->lane[f]));
    check_problem(c, NULL, "%s has a row %s: %.*s", check_family((enum family)f), what, (int)name.n, name.p);
    buf_release(&name);
    check_next(c, (enum family)f);
}

static void check_data(struct check *c)
{
    struct check_key k = {0};
    struct codec_key raw;
    int f;
    open_lanes(c, (bytes){0});
    for (;;) {
        if (c->failed && !skip_damage(c, &k.p)) break;
        if ((f = foremost(c)) < 0) break;
        bytes first = store_key(c->lane[f]);
        if (!codec_key_read(first, &raw)) {
            check_foreign(c, f, "that is no key");
            continue;
        }
        if (raw.region != CHECK_PREFIX) {
            check_foreign(c, f, "of another region");
            continue;
        }
        buf_clear(&k.p);
        buf_append(&k.p, first.p, first.n - raw.rest.n);
        k.index = raw.index;
        k.slot = raw.slot;
        k.key = bytes_of(k.p.p + CODEC_PREFIX_FIXED, raw.key.n);
        check_key(c, &k);
    }
    buf_release(&k.p);
}

/* -- as a whole ----------------------------------------------------------------------------------------- */

static void check_release(struct check *c)
{
    for (int f = 0; f < CHECK_LANES; f++)
        if (c->lane[f]) store_iter_done(c->lane[f]);
    due_counts_clear(&c->buckets);
    check_release_state(c);
    buf_release(&c->legacy_position);
    store_session_close(c->session);
    store_close(c->store);
}

/* Verifies the WAL before its rows are checked. Returns the exit code if the check ends here; -1:
 * continue. */
static int check_logs(const char *dir)
{
    struct wal_verdict v;
    if (store_folder_look(dir, NULL) != STORE_FOLDER_DATABASE || store_folder_in_use(dir, NULL)) return -1;
    wal_verify(dir, NULL, &v);
    bool damaged = v.state == WAL_DAMAGED || (v.state == WAL_TORN && v.tables_ahead), cut = v.after.n > 0;
    if (damaged) printf("PROBLEM: RocksDB's logs in %s are damaged: %.*s\n", dir, (int)v.text.n, v.text.p);
    else if (v.state == WAL_TORN)
        printf("RocksDB's log has a torn end, as after a power cut: %.*s. What came after it was not synced, "
               "and will not be used%s\n", (int)v.text.n, v.text.p,
               cut ? ". Start the server, which puts it aside, before checking the rest" : "");
    wal_verdict_release(&v);
    return damaged ? 1 : v.state == WAL_TORN && cut ? 0 : -1;
}

int rocks_check(const char *dir)
{
    struct log log = {.level = LOG_WARNING};
    struct rocks_options o = {.dir = dir, .log = &log, .databases = 1};
    struct check c = {0};
    struct buf why = {0};
    int code = check_logs(dir);
    if (code >= 0) return code;
    c.store = store_open(&o, true, &why);
    if (!c.store) {
        printf("Can't check %s: %.*s\n", dir, (int)why.n, why.n ? why.p : "it can't be opened");
        buf_release(&why);
        return 2;
    }
    c.session = store_session_open(c.store, &c.failed);
    due_counts_init(&c.buckets, 0);
    if (!check_layout(&c)) {
        check_release(&c);
        return 2;
    }
    check_read_state(&c);
    check_data(&c);
    check_due_rows(&c);
    check_counts(&c);
    check_kept(&c);
    check_raft_log(&c);
    printf("Checked %s\n", dir);
    print_summary(&c);
    check_release(&c);
    buf_release(&why);
    return c.problems ? 1 : 0;
}
