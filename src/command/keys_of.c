/* Which arguments of a request are keys, and what the command does with each: for access control, COMMAND
 * GETKEYS and client-side caching. Almost all of it follows from the key specs of the table. Commands whose
 * options decide have a function here, which walks the options as the command itself does: a word that is
 * another option's argument is no keyword, and of options given twice the last one counts.
 * tests/exec/test_acl_keys.c compares both for every command. */
#include "base/num.h"
#include "command/commands.h"

/* The caller's array. `n` counts on beyond `max`. */
struct found {
    struct key_use *out;
    int n, max;
};

static void key_uses_add(struct found *f, int at, u32 flags)
{
    if (f->n < f->max) f->out[f->n] = (struct key_use){.at = at, .flags = flags};
    f->n++;
}

/* -- key specs -------------------------------------------------------------- */

/* Where a spec's keys begin, 0 if its keyword is not given. The last argument cannot be the
 * keyword, as nothing would follow it. */
static int spec_begin(const struct key_spec *s, int argc, const bytes *argv)
{
    if (s->begin == SEEK_INDEX) return s->pos;
    int step = s->pos > 0 ? 1 : -1; /* a negative start counts from the end and goes down */
    for (int i = s->pos > 0 ? s->pos : argc + s->pos; i > 0 && i < argc - 1; i += step) {
        if (bytes_is(argv[i], s->keyword)) return i + 1;
    }
    return 0;
}

/* The first and last of the keys that begin at *first. A number of keys the command itself would
 * refuse ("2x") is invalid here; Redis guesses, reading it like atoi. */
static bool spec_range(const struct key_spec *s, int argc, const bytes *argv, int *first, int *last)
{
    if (s->find == FIND_RANGE) {
        if (s->last >= 0) *last = *first + s->last;
        else if (s->limit == 0) *last = argc + s->last;
        else *last = *first + (argc - *first) / s->limit + s->last;
    } else if (s->find == FIND_KEYNUM) {
        int count_at = *first + s->last;
        i64 count;
        if (count_at >= argc || !num_parse_i64(argv[count_at], &count)) return false;
        if (count < 0 || count > argc) return false;
        *first += s->limit;
        *last = *first + ((int)count - 1) * s->step;
        if (count == 0) return true; /* a script without keys */
    } else {
        return false;
    }
    if (*first == argc && s->last < 0) return true; /* PFMERGE without sources */
    return *first <= *last && *last < argc;
}

static bool add_spec(const struct key_spec *s, int argc, const bytes *argv, struct found *f)
{
    if (s->begin == SEEK_UNKNOWN) return false;
    int first = spec_begin(s, argc, argv), last;
    if (first == 0) return true;
    if (!spec_range(s, argc, argv, &first, &last)) return false;
    for (int i = first; i <= last; i += s->step) key_uses_add(f, i, s->flags);
    return !(s->flags & KEY_INCOMPLETE);
}

/* -- commands whose options decide ------------------------------------------ */

/* SET reads the old value only with GET. */
static void set_keys(int argc, const bytes *argv, struct found *f)
{
    u32 flags = KEY_OW | KEY_UPDATE;
    for (int i = 3; i < argc; i++) {
        if (bytes_is(argv[i], "get")) flags = KEY_RW | KEY_ACCESS | KEY_UPDATE;
    }
    key_uses_add(f, 1, flags);
}

/* BITFIELD writes unless all its operations are well-formed GETs. */
static void bitfield_keys(int argc, const bytes *argv, struct found *f)
{
    int i = 2;
    while (i < argc) {
        if (bytes_is(argv[i], "get") && i + 2 < argc) i += 3;
        else if (bytes_is(argv[i], "overflow") && i + 1 < argc) i += 2;
        else break;
    }
    key_uses_add(f, 1, i == argc ? KEY_RO | KEY_ACCESS : KEY_RW | KEY_ACCESS | KEY_UPDATE);
}

/* SORT stores to the key after the last STORE. Keys that BY and GET patterns lead to depend on the data and
 * are not reported. */
static void sort_keys(int argc, const bytes *argv, struct found *f)
{
    int store = 0;
    for (int i = 2; i < argc; i++) {
        if (bytes_is(argv[i], "limit")) i += 2;
        else if (bytes_is(argv[i], "get") || bytes_is(argv[i], "by")) i++;
        else if (bytes_is(argv[i], "store") && i + 1 < argc) store = ++i;
    }
    key_uses_add(f, 1, KEY_RO | KEY_ACCESS);
    if (store) key_uses_add(f, store, KEY_OW | KEY_UPDATE);
}

/* GEORADIUS and GEORADIUSBYMEMBER, whose options begin at `from`: likewise, STOREDIST being another STORE. */
static void radius_keys(int argc, const bytes *argv, int from, struct found *f)
{
    int store = 0;
    for (int i = from; i < argc; i++) {
        bool stores = bytes_is(argv[i], "store") || bytes_is(argv[i], "storedist");
        if (bytes_is(argv[i], "count")) i++;
        else if (stores && i + 1 < argc) store = ++i;
    }
    key_uses_add(f, 1, KEY_RO | KEY_ACCESS);
    if (store) key_uses_add(f, store, KEY_OW | KEY_UPDATE);
}

/* XREAD and XREADGROUP: the first half of what follows STREAMS. */
static bool stream_keys(int argc, const bytes *argv, struct found *f)
{
    int i = 1;
    while (i < argc && !bytes_is(argv[i], "streams")) {
        if (bytes_is(argv[i], "group")) i += 3;
        else if (bytes_is(argv[i], "count") || bytes_is(argv[i], "block")) i += 2;
        else if (bytes_is(argv[i], "noack")) i++;
        else return false;
    }
    int streams = (argc - i - 1) / 2;
    for (int k = 1; k <= streams; k++) key_uses_add(f, i + k, KEY_RO | KEY_ACCESS);
    return streams > 0;
}

/* XCLAIM and XAUTOCLAIM return the entries themselves, unless JUSTID is given. */
static void claim_keys(int argc, const bytes *argv, u32 use, struct found *f)
{
    bool reads = true;
    for (int i = 5; i < argc && reads; i++) reads = !bytes_is(argv[i], "justid");
    key_uses_add(f, 1, KEY_RW | use | (reads ? KEY_ACCESS : 0));
}

/* MIGRATE: what follows KEYS, which ends the options, or else the key before them. */
static void migrate_keys(int argc, const bytes *argv, struct found *f)
{
    int i = 6;
    for (; i < argc && !bytes_is(argv[i], "keys"); i++) {
        if (bytes_is(argv[i], "auth")) i++;
        else if (bytes_is(argv[i], "auth2")) i += 2;
    }
    if (i >= argc || argv[3].n) key_uses_add(f, 3, KEY_RW | KEY_ACCESS | KEY_DELETE);
    while (++i < argc) key_uses_add(f, i, KEY_RW | KEY_ACCESS | KEY_DELETE);
}

/* False: the arguments are invalid. *by_specs: the table decides. */
static bool add_by_options(const struct command *cmd, int argc, const bytes *argv, struct found *f,
                           bool *by_specs)
{
    *by_specs = false;
    if (cmd->run == cmd_set) set_keys(argc, argv, f);
    else if (cmd->run == cmd_bitfield) bitfield_keys(argc, argv, f);
    else if (cmd->run == cmd_sort) sort_keys(argc, argv, f);
    else if (cmd->run == cmd_sort_ro) key_uses_add(f, 1, KEY_RO | KEY_ACCESS);
    else if (cmd->run == cmd_georadius) radius_keys(argc, argv, 6, f);
    else if (cmd->run == cmd_georadiusbymember) radius_keys(argc, argv, 5, f);
    else if (cmd->run == cmd_xread || cmd->run == cmd_xreadgroup) return stream_keys(argc, argv, f);
    else if (cmd->run == cmd_xclaim) claim_keys(argc, argv, KEY_UPDATE, f);
    else if (cmd->run == cmd_xautoclaim) claim_keys(argc, argv, KEY_DELETE, f);
    else if (cmd->run == cmd_migrate) migrate_keys(argc, argv, f);
    else if (cmd->run == cmd_pfdebug)
        key_uses_add(f, 2, KEY_RW | KEY_ACCESS | KEY_UPDATE); /* GETREG makes it dense, too */
    else *by_specs = true;
    return true;
}

int command_keys(const struct command *cmd, int argc, const bytes *argv, struct key_use *out,
                 int max)
{
    struct found f = {.out = out, .max = max};
    bool by_specs;
    if (!add_by_options(cmd, argc, argv, &f, &by_specs)) return -1;
    if (!by_specs) return f.n;
    for (int i = 0; i < COMMAND_MAX_SPECS && cmd->specs[i].begin != SEEK_NONE; i++) {
        if (cmd->specs[i].flags & KEY_NOT_KEY) continue;
        if (!add_spec(&cmd->specs[i], argc, argv, &f)) return -1;
    }
    return f.n;
}
