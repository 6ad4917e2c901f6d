/* Parses the notation of syntax.h, by recursive descent over our own text, which the unit test checks as a
 * whole. Any failure is a NULL or false that is passed up. */
#include "command/syntax.h"

struct parser {
    const char *at;
    struct syntax *out;
};

struct list {
    struct syntax_arg *first;
    size_t count;
    bool one_of; /* the parts are separated by '|' */
};

static struct syntax_arg *parse_arg(struct parser *p);

static struct syntax_arg *new_arg(struct parser *p, enum syntax_type type)
{
    if (p->out->used == SYNTAX_MAX_ARGS) return NULL;
    struct syntax_arg *arg = &p->out->pool[p->out->used++];
    *arg = (struct syntax_arg){.type = type, .key_spec = -1};
    return arg;
}

static bytes syntax_take(struct parser *p, size_t n)
{
    bytes taken = bytes_of(p->at, n);
    p->at += n;
    return taken;
}

static bool take_char(struct parser *p, char c)
{
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

/* -- lists and groups -------------------------------------------------------- */

/* Up to `end`, which is consumed, too, unless it is the end of the text. */
static bool parse_list(struct parser *p, char end, struct list *list)
{
    struct syntax_arg **tail = &list->first;
    size_t bars = 0;
    *list = (struct list){0};
    for (;;) {
        p->at += strspn(p->at, " ");
        if (*p->at == end) break;
        if (list->count > 0 && take_char(p, '|')) {
            bars++;
            p->at += strspn(p->at, " ");
        }
        struct syntax_arg *arg = parse_arg(p);
        if (!arg) return false;
        *tail = arg;
        tail = &arg->next;
        list->count++;
    }
    if (end) p->at++;
    list->one_of = bars > 0;
    return bars == 0 || bars + 1 == list->count;
}

static struct syntax_arg *syntax_parse_group(struct parser *p, bytes name)
{
    bool optional = *p->at++ == '[';
    struct list parts;
    if (!parse_list(p, optional ? ']' : '>', &parts) || parts.count == 0) return NULL;
    bool is_group = !optional || name.n > 0 || parts.count > 1;
    struct syntax_arg *arg = parts.first;
    if (is_group) {
        arg = new_arg(p, parts.one_of ? SYNTAX_ONE_OF : SYNTAX_BLOCK);
        if (!arg) return NULL;
        arg->name = name;
        arg->parts = parts.first;
        arg->part_count = parts.count;
    }
    if (optional) arg->flags |= SYNTAX_OPTIONAL;
    return arg;
}

/* -- single arguments -------------------------------------------------------- */

/* The type of a name without a type letter; others are strings. */
static char usual_type(bytes name)
{
    static const struct {
        const char *name;
        char type;
    } usual[] = {
        {"key", '0'}, {"source", '0'}, {"destination", '0'},
        {"client-id", 'i'}, {"count", 'i'}, {"cursor", 'i'}, {"end", 'i'}, {"increment", 'i'},
        {"index", 'i'}, {"milliseconds", 'i'}, {"numfields", 'i'}, {"numkeys", 'i'},
        {"offset", 'i'}, {"seconds", 'i'}, {"start", 'i'}, {"stop", 'i'}, {"weight", 'i'},
        {"latitude", 'd'}, {"longitude", 'd'}, {"radius", 'd'}, {"pattern", 'p'},
        {"unix-time-seconds", 'u'}, {"unix-time-milliseconds", 'u'},
    };
    for (size_t i = 0; i < ARRAY_LEN(usual); i++) {
        if (bytes_eq(name, bytes_str(usual[i].name))) return usual[i].type;
    }
    return 's';
}

static bool set_type(struct syntax_arg *arg, char letter)
{
    switch (letter) {
    case 's': arg->type = SYNTAX_STRING; return true;
    case 'i': arg->type = SYNTAX_INTEGER; return true;
    case 'd': arg->type = SYNTAX_DOUBLE; return true;
    case 'p': arg->type = SYNTAX_PATTERN; return true;
    case 'u': arg->type = SYNTAX_UNIX_TIME; return true;
    default:
        arg->type = SYNTAX_KEY;
        arg->key_spec = letter - '0';
        return letter >= '0' && letter <= '9';
    }
}

/* The length of ":x" or ":p1" at the end of a word; the colon of "ip:port" belongs to the name. */
static size_t type_length(bytes word)
{
    if (word.n > 2 && word.p[word.n - 2] == ':') return 2;
    return word.n > 3 && word.p[word.n - 3] == ':' && word.p[word.n - 2] == 'p' ? 3 : 0;
}

static struct syntax_arg *syntax_named(struct parser *p, bytes word)
{
    struct syntax_arg *arg = word.n > 0 ? new_arg(p, SYNTAX_STRING) : NULL;
    if (!arg) return NULL;
    size_t n = type_length(word);
    const char *type = word.p + word.n - n + 1;
    arg->name = bytes_of(word.p, word.n - n);
    const char *tilde = memchr(arg->name.p, '~', arg->name.n);
    if (tilde) {
        arg->shown = bytes_of(tilde + 1, (size_t)(arg->name.p + arg->name.n - tilde - 1));
        arg->name.n = (size_t)(tilde - arg->name.p);
    }
    if (!set_type(arg, n ? type[0] : usual_type(arg->name))) return NULL;
    if (n == 3) arg->key_spec = type[1] - '0';
    return arg;
}

static struct syntax_arg *pure_token(struct parser *p, bytes name, bytes token)
{
    struct syntax_arg *arg = token.p ? new_arg(p, SYNTAX_TOKEN) : NULL;
    if (!arg) return NULL;
    arg->name = name;
    arg->token = token;
    return arg;
}

/* A token applies to what follows it directly, a name or a group. */
static struct syntax_arg *parse_token(struct parser *p, bytes token)
{
    bool announces = *p->at == ' ' && (is_lower(p->at[1]) || p->at[1] == '<');
    if (!announces) return pure_token(p, (bytes){0}, token);
    p->at++;
    struct syntax_arg *arg = parse_arg(p);
    if (arg) arg->token = token;
    return arg;
}

static struct syntax_arg *parse_plain(struct parser *p)
{
    bytes word = syntax_take(p, strcspn(p->at, " []<>|@!."));
    if (*p->at == '[' || *p->at == '<') return syntax_parse_group(p, word);
    const char *eq = word.n ? memchr(word.p, '=', word.n) : NULL;
    if (eq) {
        size_t n = (size_t)(eq - word.p);
        if (n == 0) return NULL;
        return pure_token(p, bytes_of(word.p, n), bytes_of(eq + 1, word.n - n - 1));
    }
    return word.n && is_upper(word.p[0]) ? parse_token(p, word) : syntax_named(p, word);
}

/* A version, if `sign` comes. */
static bool parse_version(struct parser *p, char sign, bytes *version)
{
    if (!take_char(p, sign)) return true;
    *version = syntax_take(p, strspn(p->at, "0123456789."));
    return version->n > 0;
}

/* An argument that has its token when the dots come is repeated with it: the token of `WEIGHTS weight...` is
 * attached only after the dots. */
static struct syntax_arg *parse_arg(struct parser *p)
{
    struct syntax_arg *arg = parse_plain(p);
    if (!arg) return NULL;
    if (strncmp(p->at, "...", 3) == 0) {
        p->at += 3;
        arg->flags |= SYNTAX_MULTIPLE | (arg->token.n ? SYNTAX_MULTIPLE_TOKEN : 0);
    }
    if (!parse_version(p, '@', &arg->since)) return NULL;
    if (!parse_version(p, '!', &arg->deprecated_since)) return NULL;
    return strchr(" ]>|", *p->at) ? arg : NULL; /* the end of the text, too */
}

/* ---------------------------------------------------------------------------- */

bool syntax_parse(struct syntax *s, const char *text)
{
    struct parser p = {.at = text, .out = s};
    struct list list;
    s->used = 0;
    bool fine = parse_list(&p, '\0', &list) && !list.one_of;
    s->first = fine ? list.first : NULL;
    s->count = fine ? list.count : 0;
    return fine;
}

void syntax_shown(const struct syntax_arg *arg, struct buf *to)
{
    if (arg->shown.n) buf_append_bytes(to, arg->shown);
    else syntax_name(arg, to);
}

void syntax_name(const struct syntax_arg *arg, struct buf *to)
{
    if (arg->name.n) {
        buf_append_bytes(to, arg->name);
    } else if (arg->type == SYNTAX_TOKEN) {
        for (size_t i = 0; i < arg->token.n; i++) {
            char c = arg->token.p[i];
            buf_append_char(to, is_upper(c) ? (char)(c + 'a' - 'A') : c);
        }
    } else {
        for (const struct syntax_arg *part = arg->parts; part; part = part->next) {
            if (part != arg->parts) buf_append_char(to, '_');
            syntax_name(part, to);
        }
    }
}
