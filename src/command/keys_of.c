/* Which arguments of a request are keys, and what the command does with each. Almost all of it
 * is told by the key specs of the table; three commands decide by their options and have a
 * function here. */
#include "base/num.h"
#include "command/commands.h"

/* Where a caller's array is filled. `n` counts on beyond `max`. */
struct found {
    struct key_use *out;
    int n, max;
};

static void add(struct found *f, int at, u32 flags)
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
    return *first <= *last && *last < argc;
}

static bool add_spec(const struct key_spec *s, int argc, const bytes *argv, struct found *f)
{
    if (s->begin == SEEK_UNKNOWN) return false;
    int first = spec_begin(s, argc, argv), last;
    if (first == 0) return true;
    if (!spec_range(s, argc, argv, &first, &last)) return false;
    for (int i = first; i <= last; i += s->step) add(f, i, s->flags);
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
    add(f, 1, flags);
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
    add(f, 1, i == argc ? KEY_RO | KEY_ACCESS : KEY_RW | KEY_ACCESS | KEY_UPDATE);
}

/* SORT stores to the key after the last STORE that is not another option's argument. Keys that
 * BY and GET patterns lead to depend on the data and are not reported. */
static void sort_keys(int argc, const bytes *argv, struct found *f)
{
    int store = 0;
    for (int i = 2; i < argc; i++) {
        if (bytes_is(argv[i], "limit")) i += 2;
        else if (bytes_is(argv[i], "get") || bytes_is(argv[i], "by")) i++;
        else if (bytes_is(argv[i], "store") && i + 1 < argc) store = i + 1;
    }
    add(f, 1, KEY_RO | KEY_ACCESS);
    if (store) add(f, store, KEY_OW | KEY_UPDATE);
}

static bool add_by_options(const struct command *cmd, int argc, const bytes *argv, struct found *f)
{
    if (cmd->run == cmd_set) set_keys(argc, argv, f);
    else if (cmd->run == cmd_bitfield) bitfield_keys(argc, argv, f);
    else if (cmd->run == cmd_sort) sort_keys(argc, argv, f);
    else if (cmd->run == cmd_sort_ro) add(f, 1, KEY_RO | KEY_ACCESS);
    else return false;
    return true;
}

int command_keys(const struct command *cmd, int argc, const bytes *argv, struct key_use *out,
                 int max)
{
    struct found f = {.out = out, .max = max};
    if (add_by_options(cmd, argc, argv, &f)) return f.n;
    for (int i = 0; i < COMMAND_MAX_SPECS && cmd->specs[i].begin != SEEK_NONE; i++) {
        if (cmd->specs[i].flags & KEY_NOT_KEY) continue;
        if (!add_spec(&cmd->specs[i], argc, argv, &f)) return -1;
    }
    return f.n;
}
