/* The command table, made from table.def, and the search by name. All of it is constant data and code:
 * nothing is built at start. */
#include "command/commands.h"

/* -- the lines of table.def ------------------------------------------------- */

#define KEYS0 {{.begin = SEEK_NONE}}
#define KEYS1(use_) {ONE(1, use_)}
#define KEYS(...) {__VA_ARGS__}
#define ONE(at_, use_) RANGE(at_, 0, 1, use_)
#define RANGE(at_, last_, step_, use_)                                      \
    {.flags = use_, .begin = SEEK_INDEX, .pos = at_,                        \
     .find = FIND_RANGE, .last = last_, .step = step_}
#define COUNTED(at_, use_)                                                  \
    {.flags = use_, .begin = SEEK_INDEX, .pos = at_,                        \
     .find = FIND_KEYNUM, .last = 0, .limit = 1, .step = 1}
#define AFTER(word_, from_, use_)                                           \
    {.flags = use_, .begin = SEEK_KEYWORD, .keyword = word_, .pos = from_,  \
     .find = FIND_RANGE, .last = 0, .step = 1}
#define ALL_AFTER(word_, from_, use_)                                       \
    {.flags = use_, .begin = SEEK_KEYWORD, .keyword = word_, .pos = from_,  \
     .find = FIND_RANGE, .last = -1, .step = 1}
#define HALF_AFTER(word_, from_, use_)                                      \
    {.flags = use_, .begin = SEEK_KEYWORD, .keyword = word_, .pos = from_,  \
     .find = FIND_RANGE, .last = -1, .step = 1, .limit = 2}
#define UNSEEN(use_) {.flags = use_, .begin = SEEK_UNKNOWN, .find = FIND_UNKNOWN}

/* The categories that follow from a command's flags, and from its group. */
#define FLAG_CATEGORY(flags_, flag_, category_) ((flags_) & (flag_) ? (category_) : 0)
#define FLAGS_CATEGORIES(f_)                                       \
    (FLAG_CATEGORY(f_, CMD_WRITE, CAT_WRITE) |                     \
     FLAG_CATEGORY(f_, CMD_READONLY, CAT_READ) |                   \
     FLAG_CATEGORY(f_, CMD_ADMIN, CAT_ADMIN | CAT_DANGEROUS) |     \
     FLAG_CATEGORY(f_, CMD_PUBSUB, CAT_PUBSUB) |                   \
     FLAG_CATEGORY(f_, CMD_BLOCKING, CAT_BLOCKING) |               \
     ((f_) & CMD_FAST ? CAT_FAST : CAT_SLOW))

#define CAT_NOT_GROUP (1u << 31)
/* EVAL_RO and the like are not in the category of reading commands: what a script reads is up to the
 * script. */
#define NOT_IMPLIED(group_) ((u32)GROUP_CATEGORY_##group_ == (u32)CAT_SCRIPTING ? (u32)CAT_READ : 0)
#define CATEGORIES(given_, flags_, group_)                                    \
    (((given_) & ~CAT_NOT_GROUP) |                                            \
     (FLAGS_CATEGORIES(flags_) & ~NOT_IMPLIED(group_)) |                      \
     ((given_) & CAT_NOT_GROUP ? 0 : GROUP_CATEGORY_##group_))

enum {
    GROUP_CATEGORY_connection = CAT_CONNECTION,
    GROUP_CATEGORY_server = 0,
    GROUP_CATEGORY_cluster = 0,
    GROUP_CATEGORY_generic = CAT_KEYSPACE,
    GROUP_CATEGORY_string = CAT_STRING,
    GROUP_CATEGORY_bitmap = CAT_BITMAP,
    GROUP_CATEGORY_hash = CAT_HASH,
    GROUP_CATEGORY_list = CAT_LIST,
    GROUP_CATEGORY_set = CAT_SET,
    GROUP_CATEGORY_sorted_set = CAT_SORTEDSET,
    GROUP_CATEGORY_hyperloglog = CAT_HYPERLOGLOG,
    GROUP_CATEGORY_geo = CAT_GEO,
    GROUP_CATEGORY_stream = CAT_STREAM,
    GROUP_CATEGORY_pubsub = CAT_PUBSUB,
    GROUP_CATEGORY_transactions = CAT_TRANSACTION,
    GROUP_CATEGORY_scripting = CAT_SCRIPTING,
};

#define GROUP_NAME_connection "connection"
#define GROUP_NAME_server "server"
#define GROUP_NAME_cluster "cluster"
#define GROUP_NAME_generic "generic"
#define GROUP_NAME_string "string"
#define GROUP_NAME_bitmap "bitmap"
#define GROUP_NAME_hash "hash"
#define GROUP_NAME_list "list"
#define GROUP_NAME_set "set"
#define GROUP_NAME_sorted_set "sorted-set"
#define GROUP_NAME_hyperloglog "hyperloglog"
#define GROUP_NAME_geo "geo"
#define GROUP_NAME_stream "stream"
#define GROUP_NAME_pubsub "pubsub"
#define GROUP_NAME_transactions "transactions"
#define GROUP_NAME_scripting "scripting"

/* __COUNTER__ numbers the entries; subcommands follow their container directly. */
enum { BEFORE_FIRST = __COUNTER__ };
#define NUMBER(n_) .id = (n_) - BEFORE_FIRST - 1, .first_sub = (n_) - BEFORE_FIRST
#define SUBS(n_) .sub_count = n_
#define DEPRECATED(since_, by_) .deprecated_since = since_, .replaced_by = by_
#define SYSTEM .system = true
#define ELEMENT(at_) .element = at_

#define DOCS(since_, complexity_, summary_, /* tips, SUBS() … */...) \
    .since = since_, .complexity = complexity_, .summary = summary_, .tips = __VA_ARGS__

#define COMMAND(name_, fn_, arity_, flags_, given_, keys_, group_, ...)            \
    {.name = name_, .run = fn_, .arity = arity_, .flags = flags_,                  \
     .categories = CATEGORIES(given_, flags_, group_), .specs = keys_,             \
     .group = GROUP_NAME_##group_, NUMBER(__COUNTER__), DOCS(__VA_ARGS__)},

/* A container has neither a function nor keys, and only the categories of its flags. */
#define CONTAINER(name_, arity_, flags_, given_, keys_, group_, ...)              \
    {.name = name_, .arity = arity_, .flags = flags_,                             \
     .categories = (given_) | FLAGS_CATEGORIES(flags_), .specs = keys_,           \
     .group = GROUP_NAME_##group_, NUMBER(__COUNTER__), DOCS(__VA_ARGS__)},

static const struct command table[] = {
#include "command/table.def"
};

#undef COMMAND
#undef CONTAINER

u32 command_count(void) { return ARRAY_LEN(table); }

const struct command *command_at(u32 id) { return &table[id]; }

/* -- the lines of syntax.def ------------------------------------------------ */

#define SYNTAX(name_, arguments_) arguments_,
static const char *const syntaxes[] = {
#include "command/syntax.def"
};
#undef SYNTAX

/* test_syntax.c checks that they are in the same order. */
_Static_assert(ARRAY_LEN(syntaxes) == ARRAY_LEN(table), "syntax.def has a line per command");

const char *command_syntax(const struct command *cmd) { return syntaxes[cmd->id]; }

/* -- finding by name -------------------------------------------------------- */

/* A name of up to 24 bytes in lower case, padded with zeros. */
struct name_key {
    u64 word[3];
};

#define EACH_BYTE(v_) ((u64)(v_)*0x0101010101010101ULL)

/* Eight ASCII letters to lower case at once: 'A'..'Z' are the bytes whose sum with 0x80 - 'A'
 * reaches the top bit, but whose sum with 0x7f - 'Z' does not. */
static inline u64 lower8(u64 w)
{
    u64 low7 = w & EACH_BYTE(0x7f);
    u64 upper = (low7 + EACH_BYTE(0x80 - 'A')) & ~(low7 + EACH_BYTE(0x7f - 'Z')) & ~w;
    return w | (upper & EACH_BYTE(0x80)) >> 2;
}

/* The bytes p[0..n), at most eight, in a register. Put together from whole loads: storing them
 * piecemeal to load them as one word costs more than all the rest of the search. */
static inline __attribute__((always_inline)) u64 word_of(const char *p, size_t n)
{
    u64 w = 0;
    u32 four;
    u16 two;
    unsigned at = 0;
    if (n >= 8) return memcpy(&w, p, 8), w;
    if (n & 4) w = (memcpy(&four, p, 4), four), at = 32;
    if (n & 2) w |= (u64)(memcpy(&two, p + at / 8, 2), two) << at, at += 16;
    if (n & 1) w |= (u64)(u8)p[at / 8] << at;
    return w;
}

static inline __attribute__((always_inline)) struct name_key key_of(const char *p, size_t n)
{
    struct name_key k = {{0}};
    k.word[0] = lower8(word_of(p, n));
    if (n > 8) k.word[1] = lower8(word_of(p + 8, n - 8));
    if (n > 16) k.word[2] = lower8(word_of(p + 16, n - 16));
    return k;
}

static inline bool same_key(struct name_key a, struct name_key b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1] && a.word[2] == b.word[2];
}

#define IS_SUBCOMMAND(name_) (__builtin_strchr(name_, '|') != NULL)

/* Splits the names of a length into eight parts, by their first two letters. */
#define PART_OF(first_, second_) (((u32)(first_) + (u32)(second_)) % 8)

/* The names of length n in one of the parts, compared one after the other. Every request comes this way, so
 * it is written for the compiler: n and part are constants wherever this is inlined, so the comparisons with
 * all other names vanish, a name is loaded by one or two moves, and each remaining comparison is one register
 * against one constant. */
static inline __attribute__((always_inline)) const struct command *find_among(struct name_key key, size_t n,
                                                                              u32 part)
{
    u32 id = 0;
#define COMMAND(name_, ...)                                                               \
    if (sizeof(name_) - 1 == n && PART_OF((name_)[0], (name_)[1]) == part &&              \
        !IS_SUBCOMMAND(name_) && same_key(key, key_of(name_, MIN(n, sizeof(name_) - 1)))) \
        return &table[id];                                                                \
    id++;
#define CONTAINER COMMAND
#include "command/table.def"
#undef COMMAND
#undef CONTAINER
    return NULL;
}

static inline __attribute__((always_inline)) const struct command *find_of_length(const char *p, size_t n)
{
    struct name_key key = key_of(p, n);
    switch (PART_OF(key.word[0], key.word[0] >> 8)) {
#define PART(i_) case i_: return find_among(key, n, i_)
        PART(0); PART(1); PART(2); PART(3); PART(4); PART(5); PART(6); PART(7);
#undef PART
    }
    return NULL;
}

const struct command *command_find(bytes name)
{
    switch (name.n) {
#define LENGTH(n_) case n_: return find_of_length(name.p, n_)
        LENGTH(1); LENGTH(2); LENGTH(3); LENGTH(4); LENGTH(5); LENGTH(6); LENGTH(7); LENGTH(8);
        LENGTH(9); LENGTH(10); LENGTH(11); LENGTH(12); LENGTH(13); LENGTH(14); LENGTH(15);
        LENGTH(16); LENGTH(17); LENGTH(18); LENGTH(19); LENGTH(20); LENGTH(21); LENGTH(22);
        LENGTH(23); LENGTH(24);
#undef LENGTH
    default: return NULL;
    }
}

const struct command *command_find_sub(const struct command *container, bytes sub)
{
    size_t skip = strlen(container->name) + 1;
    for (u32 i = 0; i < container->sub_count; i++) {
        const struct command *cmd = &table[container->first_sub + i];
        if (bytes_is(sub, cmd->name + skip)) return cmd;
    }
    return NULL;
}
