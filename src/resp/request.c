#include "resp/request.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/num.h"

#define LINE_MAX_BYTES (64 * 1024)
#define MAX_ARGS INT32_MAX
#define UNAUTH_ARGS 10
#define UNAUTH_BULK 16384
#define ARGV_FIRST 8
#define ARGV_TRUSTED 1024 /* arguments allocated in advance at most, whatever the request announces */
#define WORDS_KEEP 1024
#define SHORT_MAX 999 /* below UNAUTH_BULK: allowed before authentication */
#define BULK_MIN 6    /* "$0\r\n\r\n": the shortest argument, and at least as long as a short header */

void request_parser_init(struct request_parser *p) { *p = (struct request_parser){.bulk = -1}; }

void request_parser_release(struct request_parser *p)
{
    mem_free(p->argv);
    buf_release(&p->words);
    request_parser_init(p);
}

void request_parser_trim(struct request_parser *p)
{
    if (p->left) return; /* in use: the arguments of the incomplete request */
    p->argc = 0;
    if (p->cap > ARGV_TRUSTED) {
        mem_free(p->argv);
        p->argv = NULL;
        p->cap = 0;
    }
    if (p->words.cap > WORDS_KEEP) buf_release(&p->words);
}

static err request_fail(struct request_parser *p, err e, const char *text)
{
    snprintf(p->error, sizeof p->error, "%s", text);
    return e;
}

static void request_add_arg(struct request_parser *p, size_t at, size_t n)
{
    if (UNLIKELY(p->argc == p->cap)) {
        p->cap = p->cap ? p->cap * 2 : ARGV_FIRST;
        p->argv = mem_realloc(p->argv, p->cap * sizeof *p->argv);
    }
    p->argv[p->argc++] = (struct arg_span){(u32)at, (u32)n};
}

/* Sets *len to the length of the line at p->pos without its CRLF, which must be complete. Like Redis, it
 * checks `too_big` only while the line is incomplete. */
static err find_line(struct request_parser *p, bytes in, const char *too_big, size_t *len)
{
    const char *from = in.p + p->pos;
    size_t have = in.n - p->pos;
    const char *cr = memchr(from, '\r', have);
    if (!cr) return have > LINE_MAX_BYTES ? request_fail(p, ERR_SYNTAX, too_big) : ERR_AGAIN;
    if ((size_t)(cr - from) + 2 > have) return ERR_AGAIN;
    *len = (size_t)(cr - from);
    return OK;
}

/* Parses "*n\r\n" or "$n\r\n" with n of one to three digits, the form of nearly every header. Returns its
 * end; NULL: any other form. Needs BULK_MIN bytes of input. Like Redis, it does not check the line feed. */
static inline const char *short_header(const char *s, char type, u32 *n)
{
    u32 v = (u8)(s[1] - '0');
    if (s[0] != type || v > 9) return NULL;
    for (s += 2; *s != '\r'; s++) {
        u32 digit = (u8)(*s - '0');
        if (digit > 9 || v == 0 || v > SHORT_MAX / 10) return NULL;
        v = v * 10 + digit;
    }
    *n = v;
    return s + 2;
}

static err request_parse_count(struct request_parser *p, const struct request_limits *limits, bytes in)
{
    size_t len;
    err e = find_line(p, in, "too big mbulk count string", &len);
    if (e) return e;
    i64 count;
    if (!num_parse_i64(bytes_of(in.p + 1, len - 1), &count) || count > MAX_ARGS)
        return request_fail(p, ERR_SYNTAX, "invalid multibulk length");
    if (count > UNAUTH_ARGS && limits->unauthenticated)
        return request_fail(p, ERR_LIMIT, "unauthenticated multibulk length");
    p->pos += (u32)len + 2;
    p->left = count > 0 ? count : 0;
    p->bulk = -1;
    if (p->left > p->cap) {
        p->cap = (u32)MIN(p->left, ARGV_TRUSTED);
        p->argv = mem_realloc(p->argv, p->cap * sizeof *p->argv);
    }
    return OK;
}

static err parse_bulk_header(struct request_parser *p, const struct request_limits *limits, bytes in)
{
    u32 length;
    const char *end = in.n - p->pos < BULK_MIN ? NULL : short_header(in.p + p->pos, '$', &length);
    if (LIKELY(end && length <= limits->max_bulk)) {
        p->pos = (u32)(end - in.p);
        p->bulk = length;
        return OK;
    }
    size_t len;
    err e = find_line(p, in, "too big bulk count string", &len);
    if (e) return e;
    const char *s = in.p + p->pos;
    if (*s != '$') {
        snprintf(p->error, sizeof p->error, "expected '$', got '%c'", *s);
        return ERR_SYNTAX;
    }
    i64 n;
    if (!num_parse_i64(bytes_of(s + 1, len - 1), &n) || n < 0 || n > limits->max_bulk)
        return request_fail(p, ERR_SYNTAX, "invalid bulk length");
    if (n > UNAUTH_BULK && limits->unauthenticated)
        return request_fail(p, ERR_LIMIT, "unauthenticated bulk length");
    p->pos += (u32)len + 2;
    p->bulk = n;
    return OK;
}

static err request_finish(struct request_parser *p, size_t *used)
{
    *used = p->pos;
    p->pos = 0;
    p->left = 0;
    p->bulk = -1;
    return OK;
}

static err parse_multibulk(struct request_parser *p, const struct request_limits *limits, bytes in,
                           size_t *used)
{
    err e;
    if (p->left == 0) {
        p->argc = 0;
        p->is_inline = false;
        if ((e = request_parse_count(p, limits, in))) return e;
    }
    while (p->left) {
        if (p->bulk < 0 && (e = parse_bulk_header(p, limits, in))) return e;
        if (in.n - p->pos < (size_t)p->bulk + 2) return ERR_AGAIN;
        request_add_arg(p, p->pos, (size_t)p->bulk);
        p->pos += (u32)p->bulk + 2;
        p->bulk = -1;
        p->left--;
    }
    return request_finish(p, used);
}

static err parse_inline(struct request_parser *p, bytes in, size_t *used)
{
    const char *nl = memchr(in.p + p->pos, '\n', in.n - p->pos);
    if (!nl) {
        if (in.n > LINE_MAX_BYTES) return request_fail(p, ERR_SYNTAX, "too big inline request");
        p->pos = (u32)in.n;
        return ERR_AGAIN;
    }
    size_t len = (size_t)(nl - in.p);
    p->pos = (u32)len + 1;
    if (len && in.p[len - 1] == '\r') len--;
    if (!request_split_words(p, bytes_of(in.p, len)))
        return request_fail(p, ERR_SYNTAX, "unbalanced quotes in request");
    return request_finish(p, used);
}

err request_parse(struct request_parser *p, const struct request_limits *limits, bytes in, size_t *used)
{
    if (in.n <= p->pos) return ERR_AGAIN;
    if (p->left == 0 && in.p[0] != '*') return parse_inline(p, in, used);
    return parse_multibulk(p, limits, in, used);
}

size_t request_take(const struct request_limits *limits, bytes in, bytes *argv, u32 room, u32 *argc)
{
    u32 count, length;
    const char *s = in.p, *end = in.p + in.n;
    if (in.n < BULK_MIN || !(s = short_header(s, '*', &count)) || count - 1 >= room) return 0;
    if ((count > UNAUTH_ARGS && limits->unauthenticated) || limits->max_bulk < SHORT_MAX) return 0;
    for (u32 i = 0; i < count; i++) {
        if (end - s < BULK_MIN || !(s = short_header(s, '$', &length))) return 0;
        if (end - s < (i64)length + 2) return 0;
        argv[i] = bytes_of(s, length);
        s += length + 2;
    }
    *argc = count;
    return (size_t)(s - in.p);
}

size_t request_needed(const struct request_parser *p)
{
    return p->bulk >= 0 ? (size_t)p->pos + (size_t)p->bulk + 2 : 0;
}

/* -- words --------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0'; }

static int request_hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static char escaped(char c)
{
    switch (c) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return c;
    }
}

/* As in \x41. */
static bool is_hex_escape(const char *p, const char *end)
{
    return p + 3 < end && p[1] == 'x' && request_hex_digit(p[2]) >= 0 && request_hex_digit(p[3]) >= 0;
}

/* Reads a quoted string that starts after its opening quote at *s, and sets *s to the byte after the closing
 * quote. False: not terminated properly. */
static bool read_quoted(const char **s, const char *end, char quote, struct buf *out)
{
    const char *p = *s;
    for (;; p++) {
        if (p >= end) return false;
        if (*p == quote) break;
        if (*p != '\\' || p + 1 >= end) {
            buf_append_char(out, *p);
        } else if (quote == '"' && is_hex_escape(p, end)) {
            buf_append_char(out, (char)(request_hex_digit(p[2]) * 16 + request_hex_digit(p[3])));
            p += 3;
        } else if (quote == '"') {
            buf_append_char(out, escaped(*++p));
        } else if (p[1] == '\'') {
            buf_append_char(out, *++p);
        } else {
            buf_append_char(out, *p);
        }
    }
    *s = p + 1;
    return *s == end || is_blank(**s);
}

bool request_split_words(struct request_parser *p, bytes line)
{
    const char *s = line.p, *end = line.p + line.n;
    p->argc = 0;
    p->is_inline = true;
    buf_clear(&p->words);
    buf_reserve(&p->words, line.n + 1); /* enough for all words; not NULL even for an empty word */
    for (;;) {
        while (s < end && is_blank(*s)) s++;
        if (s == end) return true;
        size_t at = p->words.n;
        while (s < end && !is_blank(*s)) {
            if (*s == '"' || *s == '\'') {
                char quote = *s++;
                if (!read_quoted(&s, end, quote, &p->words)) return false;
            } else {
                buf_append_char(&p->words, *s++);
            }
        }
        request_add_arg(p, at, p->words.n - at);
    }
}
