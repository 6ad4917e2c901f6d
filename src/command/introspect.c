/* COMMAND: the table as clients see it. Nothing here is stored; every reply is derived from the
 * entries of table.def. */
#include "base/alloc.h"
#include "base/glob.h"
#include "command/commands.h"
#include "command/syntax.h"

/* Names of bits, the lowest first. */
static const char *const flag_names[] = {
    "write", "readonly", "denyoom", "admin", "pubsub", "noscript", "blocking", "loading", "stale",
    "skip_monitor", "skip_slowlog", "asking", "fast", "no_auth", "may_replicate",
    "no_async_loading", "no_multi", "no_mandatory_keys", "movablekeys", "allow_busy", "only_sentinel",
};
const char *const command_category_names[COMMAND_CATEGORIES] = {
    "@keyspace", "@read", "@write", "@set", "@sortedset", "@list", "@hash", "@string", "@bitmap",
    "@hyperloglog", "@geo", "@stream", "@pubsub", "@admin", "@fast", "@slow", "@blocking",
    "@dangerous", "@connection", "@transaction", "@scripting",
};
static const char *const key_flag_names[] = {
    "RO", "RW", "OW", "RM", "access", "update", "insert", "delete", "incomplete",
    "variable_flags", "not_key",
};

static const char *const doc_flag_names[] = {"deprecated", "syscmd"};
static const char *const arg_flag_names[] = {"optional", "multiple", "multiple_token"};
static const char *const arg_type_names[] = {
    "string", "integer", "double", "key", "pattern", "unix-time", "pure-token", "oneof", "block",
};

static void reply_bits(struct reply *out, u32 bits, const char *const *names, size_t n)
{
    reply_set(out, (size_t)__builtin_popcount(bits));
    for (size_t i = 0; i < n; i++) {
        if (bits >> i & 1) reply_simple(out, names[i]);
    }
}
#define REPLY_BITS(out_, bits_, names_) reply_bits(out_, bits_, names_, ARRAY_LEN(names_))

/* Iterates over commands without their subcommands. */
static const struct command *next_top(const struct command *cmd)
{
    u32 id = cmd ? cmd->id + 1 + cmd->sub_count : 0;
    return id < command_count() ? command_at(id) : NULL;
}

static size_t top_count(void)
{
    size_t n = 0;
    for (const struct command *cmd = NULL; (cmd = next_top(cmd));) n++;
    return n;
}

const struct command *command_find_full(bytes name)
{
    const char *bar = name.n ? memchr(name.p, '|', name.n) : NULL;
    if (!bar) return command_find(name);
    size_t at = (size_t)(bar - name.p);
    const struct command *container = command_find(bytes_of(name.p, at));
    return container ? command_find_sub(container, bytes_of(bar + 1, name.n - at - 1)) : NULL;
}

/* -- COMMAND INFO ----------------------------------------------------------- */

/* The keys as described before key specs: first, last, step. */
struct span {
    int first, last, step;
};

static bool is_plain_range(const struct key_spec *s)
{
    return s->begin == SEEK_INDEX && s->find == FIND_RANGE;
}

static int absolute_last(const struct key_spec *s)
{
    return s->last < 0 ? s->last : s->pos + s->last;
}

/* A single range is exact. Of several specs those count that are ranges of step 1, each beginning right after
 * the one before; "movablekeys" tells clients about the others. */
static struct span span_of(const struct command *cmd)
{
    const struct key_spec *s = cmd->specs;
    if (s[1].begin == SEEK_NONE && is_plain_range(&s[0])) {
        return (struct span){s[0].pos, absolute_last(&s[0]), s[0].step};
    }
    struct span span = {0, 0, 0};
    for (int i = 0; i < COMMAND_MAX_SPECS; i++) {
        if (!is_plain_range(&s[i]) || s[i].step != 1) continue;
        if (span.first && s[i].pos != span.last + 1) continue;
        span = (struct span){span.first ? span.first : s[i].pos, absolute_last(&s[i]), 1};
    }
    return span;
}

/* {"type": …, "spec": {…}} under a name; the caller writes the spec's pairs. */
static void open_search(struct reply *out, const char *name, const char *type, size_t pairs)
{
    reply_bulk_str(out, name);
    reply_map(out, 2);
    reply_bulk_str(out, "type");
    reply_bulk_str(out, type);
    reply_bulk_str(out, "spec");
    reply_map(out, pairs);
}

static void reply_pair(struct reply *out, const char *name, i64 value)
{
    reply_bulk_str(out, name);
    reply_int(out, value);
}

static void reply_begin_search(struct reply *out, const struct key_spec *s)
{
    if (s->begin == SEEK_INDEX) {
        open_search(out, "begin_search", "index", 1);
        reply_pair(out, "index", s->pos);
    } else if (s->begin == SEEK_KEYWORD) {
        open_search(out, "begin_search", "keyword", 2);
        reply_bulk_str(out, "keyword");
        reply_bulk_str(out, s->keyword);
        reply_pair(out, "startfrom", s->pos);
    } else {
        open_search(out, "begin_search", "unknown", 0);
    }
}

static void reply_find_keys(struct reply *out, const struct key_spec *s)
{
    if (s->find == FIND_RANGE) {
        open_search(out, "find_keys", "range", 3);
        reply_pair(out, "lastkey", s->last);
        reply_pair(out, "keystep", s->step);
        reply_pair(out, "limit", s->limit);
    } else if (s->find == FIND_KEYNUM) {
        open_search(out, "find_keys", "keynum", 3);
        reply_pair(out, "keynumidx", s->last);
        reply_pair(out, "firstkey", s->limit);
        reply_pair(out, "keystep", s->step);
    } else {
        open_search(out, "find_keys", "unknown", 0);
    }
}

static void reply_specs(struct reply *out, const struct key_spec *specs)
{
    size_t n = 0;
    while (n < COMMAND_MAX_SPECS && specs[n].begin != SEEK_NONE) n++;
    reply_set(out, n);
    for (size_t i = 0; i < n; i++) {
        reply_map(out, 3);
        reply_bulk_str(out, "flags");
        REPLY_BITS(out, specs[i].flags, key_flag_names);
        reply_begin_search(out, &specs[i]);
        reply_find_keys(out, &specs[i]);
    }
}

static void reply_tips(struct reply *out, const char *tips)
{
    size_t mark = reply_mark(out), n = 0;
    while (*tips) {
        size_t len = strcspn(tips, " ");
        reply_bulk(out, bytes_of(tips, len));
        n++;
        tips += len + (tips[len] == ' ');
    }
    reply_set_at(out, mark, n);
}

static void reply_info(struct reply *out, const struct command *cmd)
{
    struct span span = span_of(cmd);
    reply_array(out, 10);
    reply_bulk_str(out, cmd->name);
    reply_int(out, cmd->arity);
    REPLY_BITS(out, cmd->flags & ~(u32)(CMD_MAY_REPLICATE | CMD_NO_SITE), flag_names); /* not Redis's */
    reply_int(out, span.first);
    reply_int(out, span.last);
    reply_int(out, span.step);
    REPLY_BITS(out, cmd->categories, command_category_names);
    reply_tips(out, cmd->tips);
    reply_specs(out, cmd->specs);
    reply_set(out, cmd->sub_count);
    for (u32 i = 0; i < cmd->sub_count; i++) reply_info(out, command_at(cmd->first_sub + i));
}

void cmd_command(struct ctx *c)
{
    reply_array(c->out, top_count());
    for (const struct command *cmd = NULL; (cmd = next_top(cmd));) reply_info(c->out, cmd);
}

void cmd_command_info(struct ctx *c)
{
    if (c->argc == 2) {
        cmd_command(c);
        return;
    }
    reply_array(c->out, (size_t)c->argc - 2);
    for (int i = 2; i < c->argc; i++) {
        const struct command *cmd = command_find_full(c->argv[i]);
        if (cmd) reply_info(c->out, cmd);
        else reply_null(c->out);
    }
}

void cmd_command_count(struct ctx *c) { reply_int(c->out, (i64)top_count()); }

/* -- COMMAND DOCS ----------------------------------------------------------- */

static void command_reply_text(struct reply *out, const char *name, const char *text)
{
    reply_bulk_str(out, name);
    reply_bulk_str(out, text);
}

static void reply_slice(struct reply *out, const char *name, bytes text)
{
    reply_bulk_str(out, name);
    reply_bulk(out, text);
}

static void reply_arguments(struct reply *out, const struct syntax_arg *first, size_t n);

static void reply_argument(struct reply *out, const struct syntax_arg *arg, struct buf *name)
{
    bool is_key = arg->key_spec >= 0, is_group = arg->part_count > 0;
    reply_map(out, 3 - is_group + is_key + !!arg->token.p + !!arg->since.n + !!arg->deprecated_since.n +
                       !!arg->flags + is_group);
    buf_clear(name);
    syntax_name(arg, name);
    reply_slice(out, "name", buf_bytes(name));
    command_reply_text(out, "type", arg_type_names[arg->type]);
    if (!is_group) {
        buf_clear(name);
        syntax_shown(arg, name);
        reply_slice(out, "display_text", buf_bytes(name));
    }
    if (is_key) reply_pair(out, "key_spec_index", arg->key_spec);
    if (arg->token.p) reply_slice(out, "token", arg->token);
    if (arg->since.n) reply_slice(out, "since", arg->since);
    if (arg->deprecated_since.n) reply_slice(out, "deprecated_since", arg->deprecated_since);
    if (arg->flags) {
        reply_bulk_str(out, "flags");
        REPLY_BITS(out, arg->flags, arg_flag_names);
    }
    if (is_group) reply_arguments(out, arg->parts, arg->part_count);
}

static void reply_arguments(struct reply *out, const struct syntax_arg *first, size_t n)
{
    struct buf name = {0};
    reply_bulk_str(out, "arguments");
    reply_array(out, n);
    for (const struct syntax_arg *arg = first; arg; arg = arg->next) {
        reply_argument(out, arg, &name);
    }
    buf_release(&name);
}

/* The name and its documentation: one pair of a map. */
static void reply_docs(struct reply *out, const struct command *cmd)
{
    struct syntax syntax;
    syntax_parse(&syntax, command_syntax(cmd)); /* cannot fail: test_syntax.c reads every line */
    bool has_complexity = *cmd->complexity, deprecated = cmd->deprecated_since;
    u32 doc_flags = (u32)deprecated | (u32)cmd->system << 1;
    reply_bulk_str(out, cmd->name);
    reply_map(out, 3 + has_complexity + !!doc_flags + 2 * (size_t)deprecated +
                       (syntax.count > 0) + (cmd->sub_count > 0));
    command_reply_text(out, "summary", cmd->summary);
    command_reply_text(out, "since", cmd->since);
    command_reply_text(out, "group", cmd->group);
    if (has_complexity) command_reply_text(out, "complexity", cmd->complexity);
    if (doc_flags) {
        reply_bulk_str(out, "doc_flags");
        REPLY_BITS(out, doc_flags, doc_flag_names);
    }
    if (deprecated) {
        command_reply_text(out, "deprecated_since", cmd->deprecated_since);
        command_reply_text(out, "replaced_by", cmd->replaced_by);
    }
    if (syntax.count) reply_arguments(out, syntax.first, syntax.count);
    if (cmd->sub_count == 0) return;
    reply_bulk_str(out, "subcommands");
    reply_map(out, cmd->sub_count);
    for (u32 i = 0; i < cmd->sub_count; i++) reply_docs(out, command_at(cmd->first_sub + i));
}

void cmd_command_docs(struct ctx *c)
{
    if (c->argc == 2) {
        reply_map(c->out, top_count());
        for (const struct command *cmd = NULL; (cmd = next_top(cmd));) reply_docs(c->out, cmd);
        return;
    }
    size_t mark = reply_mark(c->out), n = 0;
    for (int i = 2; i < c->argc; i++) {
        const struct command *cmd = command_find_full(c->argv[i]);
        if (!cmd) continue;
        reply_docs(c->out, cmd);
        n++;
    }
    reply_map_at(c->out, mark, n);
}

/* -- COMMAND LIST ----------------------------------------------------------- */

struct list_filter {
    enum { LIST_ALL, LIST_MODULE, LIST_CATEGORY, LIST_PATTERN } by;
    bytes arg;
    u32 category;
};

u32 command_category(bytes name)
{
    for (size_t i = 0; i < COMMAND_CATEGORIES; i++) {
        if (bytes_is(name, command_category_names[i] + 1)) return 1u << i;
    }
    return 0;
}

static bool parse_filter(struct ctx *c, struct list_filter *f)
{
    *f = (struct list_filter){.by = LIST_ALL};
    if (c->argc == 2) return true;
    if (c->argc != 5 || !bytes_is(c->argv[2], "filterby")) return false;
    f->arg = c->argv[4];
    if (bytes_is(c->argv[3], "module")) f->by = LIST_MODULE;
    else if (bytes_is(c->argv[3], "aclcat")) f->by = LIST_CATEGORY;
    else if (bytes_is(c->argv[3], "pattern")) f->by = LIST_PATTERN;
    else return false;
    f->category = command_category(f->arg);
    return true;
}

static bool passes(const struct list_filter *f, const struct command *cmd)
{
    switch (f->by) {
    case LIST_MODULE: return false; /* there are no modules */
    case LIST_CATEGORY: return cmd->categories & f->category;
    case LIST_PATTERN: return glob_match(f->arg, bytes_str(cmd->name), true);
    default: return true;
    }
}

void cmd_command_list(struct ctx *c)
{
    struct list_filter filter;
    if (!parse_filter(c, &filter)) {
        ctx_syntax_error(c);
        return;
    }
    size_t mark = reply_mark(c->out), n = 0;
    for (u32 id = 0; id < command_count(); id++) {
        if (!passes(&filter, command_at(id))) continue;
        reply_bulk_str(c->out, command_at(id)->name);
        n++;
    }
    reply_array_at(c->out, mark, n);
}

/* -- COMMAND GETKEYS -------------------------------------------------------- */

/* The command of a full request; NULL if there is no such command or subcommand. */
static const struct command *introspect_find_request(int argc, const bytes *argv)
{
    const struct command *cmd = command_find(argv[0]);
    if (!cmd || cmd->sub_count == 0 || argc == 1) return cmd;
    return command_find_sub(cmd, argv[1]);
}

static bool has_keys(const struct command *cmd)
{
    for (int i = 0; i < COMMAND_MAX_SPECS && cmd->specs[i].begin != SEEK_NONE; i++) {
        if (!(cmd->specs[i].flags & KEY_NOT_KEY)) return true;
    }
    return false;
}

/* Whether a number of keys among the arguments is 0. */
static bool counts_none(const struct command *cmd, int argc, const bytes *argv)
{
    for (int i = 0; i < COMMAND_MAX_SPECS && cmd->specs[i].begin != SEEK_NONE; i++) {
        const struct key_spec *s = &cmd->specs[i];
        i64 count;
        if (s->find == FIND_KEYNUM && s->pos + s->last < argc &&
            num_parse_i64(argv[s->pos + s->last], &count) && count == 0) return true;
    }
    return false;
}

/* Redis finds no keys at all, not even the destination, if a number of keys is 0 or invalid. */
static void get_keys(struct ctx *c, bool with_flags)
{
    int argc = c->argc - 2;
    const bytes *argv = c->argv + 2;
    const struct command *cmd = introspect_find_request(argc, argv);
    if (!cmd) {
        reply_error(c->out, "ERR Invalid command specified");
        return;
    }
    if (!has_keys(cmd)) {
        reply_error(c->out, "ERR The command has no key arguments");
        return;
    }
    if (!command_takes(cmd, argc)) {
        reply_error(c->out, "ERR Invalid number of arguments specified for command");
        return;
    }
    struct key_use *keys = mem_alloc((size_t)argc * sizeof(*keys)); /* no argument is two keys */
    int n = command_keys(cmd, argc, argv, keys, argc);
    if (counts_none(cmd, argc, argv)) n = 0;
    if (n <= 0 && !(cmd->flags & CMD_NO_MANDATORY_KEYS)) {
        reply_error(c->out, "ERR Invalid arguments specified for command");
    } else {
        reply_array(c->out, (size_t)MAX(n, 0));
        for (int i = 0; i < n; i++) {
            if (with_flags) reply_array(c->out, 2);
            reply_bulk(c->out, argv[keys[i].at]);
            if (with_flags) REPLY_BITS(c->out, keys[i].flags, key_flag_names);
        }
    }
    mem_free(keys);
}

void cmd_command_getkeys(struct ctx *c) { get_keys(c, false); }

void cmd_command_getkeysandflags(struct ctx *c) { get_keys(c, true); }

void cmd_command_help(struct ctx *c)
{
    static const char *const lines[] = {
        "(no subcommand)",
        "    Describe all commands, as INFO does without names.",
        "COUNT",
        "    Count the commands, subcommands not included.",
        "DOCS [<command-name> ...]",
        "    Document the named commands, or all of them.",
        "GETKEYS <full-command>",
        "    Pick the keys out of a full command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Pick the keys out of a full command and tell what it does with each.",
        "INFO [<command-name> ...]",
        "    Describe the named commands, or all of them: arity, flags, keys, categories.",
        "LIST [FILTERBY <MODULE <name>|ACLCAT <category>|PATTERN <pattern>>]",
        "    List the names of all commands, or of those that pass the filter.",
        NULL,
    };
    ctx_help(c, lines);
}
