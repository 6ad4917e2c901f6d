#include "resp/reply.h"

#include <math.h>
#include <stdio.h>

#include "base/num.h"
#include "resp/command.h"

#define CRLF_LEN 2
#define HEADER_MAX (1 + NUM_I64_LEN + CRLF_LEN)

/* Writes ":123\r\n" or similar: a type byte, a number, CRLF. */
static size_t reply_write_header(char *p, char type, i64 n)
{
    p[0] = type;
    size_t len;
    if (LIKELY((u64)n < 10)) {
        p[1] = (char)('0' + n);
        len = 2;
    } else {
        len = 1 + num_print_i64(p + 1, n);
    }
    p[len] = '\r';
    p[len + 1] = '\n';
    return len + CRLF_LEN;
}

static void header(struct buf *b, char type, i64 n)
{
    b->n += reply_write_header(buf_reserve(b, HEADER_MAX), type, n);
}

static void reply_text_line(struct reply *r, char type, bytes text)
{
    char *p = buf_reserve(r->out, text.n + 1 + CRLF_LEN);
    *p++ = type;
    if (text.n) memcpy(p, text.p, text.n); /* the text of an error may be empty */
    memcpy(p + text.n, "\r\n", CRLF_LEN);
    r->out->n += text.n + 1 + CRLF_LEN;
}

void reply_ok(struct reply *r) { buf_append(r->out, "+OK\r\n", 5); }
void reply_simple(struct reply *r, const char *s) { reply_text_line(r, '+', bytes_str(s)); }

void reply_error(struct reply *r, const char *msg)
{
    r->errors++;
    r->error_at = r->out->n;
    reply_text_line(r, '-', bytes_str(msg));
}

void reply_errorf(struct reply *r, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    /* Part of the text may come from a client; a line break would end the reply. */
    while (text.n && (text.p[text.n - 1] == '\r' || text.p[text.n - 1] == '\n')) text.n--;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '\r' || text.p[i] == '\n') text.p[i] = ' ';
    }
    r->errors++;
    r->error_at = r->out->n;
    reply_text_line(r, '-', buf_bytes(&text));
    buf_release(&text);
}

void reply_int(struct reply *r, i64 v) { header(r->out, ':', v); }

void reply_bulk(struct reply *r, bytes b)
{
    char *p = buf_reserve(r->out, HEADER_MAX + b.n + CRLF_LEN);
    size_t n = reply_write_header(p, '$', (i64)b.n);
    if (b.n) memcpy(p + n, b.p, b.n);
    memcpy(p + n + b.n, "\r\n", CRLF_LEN);
    r->out->n += n + b.n + CRLF_LEN;
}

void reply_bulk_str(struct reply *r, const char *s) { reply_bulk(r, bytes_str(s)); }

void reply_bulkf(struct reply *r, const char *fmt, ...)
{
    struct buf text = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&text, fmt, ap);
    va_end(ap);
    reply_bulk(r, buf_bytes(&text));
    buf_release(&text);
}

void reply_bulk_int(struct reply *r, i64 v)
{
    char digits[NUM_I64_LEN];
    reply_bulk(r, bytes_of(digits, num_print_i64(digits, v)));
}

void reply_double(struct reply *r, double v)
{
    char text[64];
    size_t n = num_print_double(text, v);
    if (r->proto == 2) reply_bulk(r, bytes_of(text, n));
    else reply_text_line(r, ',', bytes_of(text, n));
}

void reply_bool(struct reply *r, bool v)
{
    if (r->proto == 2) reply_int(r, v);
    else buf_append(r->out, v ? "#t\r\n" : "#f\r\n", 4);
}

void reply_null(struct reply *r)
{
    if (r->proto == 2) buf_append(r->out, "$-1\r\n", 5);
    else buf_append(r->out, "_\r\n", 3);
}

void reply_null_array(struct reply *r)
{
    if (r->proto == 2) buf_append(r->out, "*-1\r\n", 5);
    else buf_append(r->out, "_\r\n", 3);
}

void reply_array(struct reply *r, size_t n) { header(r->out, '*', (i64)n); }

void reply_map(struct reply *r, size_t pairs)
{
    if (r->proto == 2) header(r->out, '*', (i64)pairs * 2);
    else header(r->out, '%', (i64)pairs);
}

void reply_set(struct reply *r, size_t n) { header(r->out, r->proto == 2 ? '*' : '~', (i64)n); }
void reply_push(struct reply *r, size_t n) { header(r->out, r->proto == 2 ? '*' : '>', (i64)n); }
void reply_attribute(struct reply *r, size_t pairs) { header(r->out, '|', (i64)pairs); }

void reply_verbatim(struct reply *r, bytes b, const char *ext3)
{
    if (r->proto == 2) {
        reply_bulk(r, b);
        return;
    }
    header(r->out, '=', (i64)b.n + 4);
    buf_append(r->out, ext3, 3);
    buf_append_char(r->out, ':');
    buf_append_bytes(r->out, b);
    buf_append(r->out, "\r\n", CRLF_LEN);
}

void reply_big_number(struct reply *r, const char *digits)
{
    if (r->proto == 2) reply_bulk_str(r, digits);
    else reply_text_line(r, '(', bytes_str(digits));
}

/* Inserts an aggregate's header at the mark, before the elements written since. */
static void header_at(struct reply *r, size_t mark, char type, i64 n)
{
    char head[HEADER_MAX];
    size_t len = reply_write_header(head, type, n);
    buf_reserve(r->out, len);
    memmove(r->out->p + mark + len, r->out->p + mark, r->out->n - mark);
    memcpy(r->out->p + mark, head, len);
    r->out->n += len;
    if (r->errors && r->error_at >= mark) r->error_at += len;
}

void reply_array_at(struct reply *r, size_t mark, size_t n) { header_at(r, mark, '*', (i64)n); }

void reply_map_at(struct reply *r, size_t mark, size_t pairs)
{
    if (r->proto == 2) header_at(r, mark, '*', (i64)pairs * 2);
    else header_at(r, mark, '%', (i64)pairs);
}

void reply_set_at(struct reply *r, size_t mark, size_t n)
{
    header_at(r, mark, r->proto == 2 ? '*' : '~', (i64)n);
}

void resp_write_command(struct buf *out, int argc, const bytes *argv)
{
    header(out, '*', argc);
    for (int i = 0; i < argc; i++) {
        header(out, '$', (i64)argv[i].n);
        buf_append_bytes(out, argv[i]);
        buf_append(out, "\r\n", CRLF_LEN);
    }
}

void resp_write_command_head(struct buf *out, int argc, const bytes *argv)
{
    header(out, '*', argc);
    for (int i = 0; i < argc - 1; i++) {
        header(out, '$', (i64)argv[i].n);
        buf_append_bytes(out, argv[i]);
        buf_append(out, "\r\n", CRLF_LEN);
    }
    header(out, '$', (i64)argv[argc - 1].n);
}
