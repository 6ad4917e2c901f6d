/* Parsing is as strict as Redis's own manifests allow: the manifest decides which data exists. */
#include "persist/aof_manifest.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc64.h"
#include "base/num.h"
#include "persist/disk_file.h"
#include "resp/request.h"

#define LINE_MAX_BYTES 1024 /* Redis's limit */
#define MANIFEST_MAX (1u << 20) /* some ten thousand files */
#define SEQ_MAX 100000000000000 /* a line of an increment has room for 12 hex digits */
#define MARK "#MF:"
#define MARK_BASE "#MF:base:"

/* -- the list ------------------------------------------------------------------------------------ */

void aof_manifest_release(struct aof_manifest *m)
{
    for (u32 i = 0; i < m->n; i++) mem_free(m->v[i].name);
    mem_free(m->v);
    *m = (struct aof_manifest){0};
}

void aof_manifest_add(struct aof_manifest *m, enum aof_type type, u64 seq, const char *name)
{
    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 8;
        m->v = mem_realloc(m->v, m->cap * sizeof *m->v);
    }
    size_t n = strlen(name) + 1;
    m->v[m->n++] = (struct aof_file){memcpy(mem_alloc(n), name, n), seq, type};
}

void aof_manifest_copy(struct aof_manifest *to, const struct aof_manifest *from)
{
    *to = (struct aof_manifest){
        .base_known = from->base_known, .base_size = from->base_size, .base_tail = from->base_tail};
    for (u32 i = 0; i < from->n; i++)
        aof_manifest_add(to, from->v[i].type, from->v[i].seq, from->v[i].name);
}

static const struct aof_file *last_of(const struct aof_manifest *m, enum aof_type type)
{
    for (u32 i = m->n; i-- > 0;)
        if (m->v[i].type == type) return &m->v[i];
    return NULL;
}

const struct aof_file *aof_manifest_base(const struct aof_manifest *m)
{
    return last_of(m, AOF_BASE);
}
const struct aof_file *aof_manifest_last(const struct aof_manifest *m)
{
    return last_of(m, AOF_INCREMENT);
}

u32 aof_manifest_count(const struct aof_manifest *m, enum aof_type type)
{
    u32 n = 0;
    for (u32 i = 0; i < m->n; i++) n += m->v[i].type == type;
    return n;
}

/* The number in a file name of our form, or 0: a manifest written by others may number files differently. */
static u64 number_in(const char *name, const char *kind)
{
    const char *end = NULL;
    u64 n = 0, place = 1;
    for (const char *s = name; (s = strstr(s, kind)); s++) end = s;
    for (; end && end > name && isdigit((u8)end[-1]) && place < SEQ_MAX; end--, place *= 10)
        n += place * (u64)(end[-1] - '0');
    return n;
}

/* Includes history, whose files may still exist. */
u64 aof_manifest_next_seq(const struct aof_manifest *m, enum aof_type type)
{
    const char *kind = type == AOF_INCREMENT ? ".incr." : ".base.";
    u64 last = 0;
    for (u32 i = 0; i < m->n; i++) {
        enum aof_type was = m->v[i].type;
        if (was == AOF_HISTORY) was = strstr(m->v[i].name, ".incr.") ? AOF_INCREMENT : AOF_BASE;
        if (was == type) last = MAX(last, m->v[i].seq);
        last = MAX(last, number_in(m->v[i].name, kind));
    }
    return last + 1;
}

void aof_manifest_retire(struct aof_manifest *m, u64 keep)
{
    for (u32 i = 0; i < m->n; i++)
        if (m->v[i].type == AOF_BASE || m->v[i].seq != keep) m->v[i].type = AOF_HISTORY;
    m->base_known = false;
}

void aof_manifest_forget(struct aof_manifest *m, const char *name)
{
    for (u32 i = 0; i < m->n; i++) {
        if (m->v[i].type != AOF_HISTORY || strcmp(m->v[i].name, name) != 0) continue;
        mem_free(m->v[i].name);
        memmove(m->v + i, m->v + i + 1, (m->n - i - 1) * sizeof *m->v);
        m->n--;
        return;
    }
}

/* The last eight bytes of an RDB file are the crc64 of the rest, and the crc64 of both together is always 0:
 * so they are added instead. */
u64 aof_tail_sum(bytes tail)
{
    u64 last = 0;
    size_t n = tail.n > sizeof last ? tail.n - sizeof last : 0;
    memcpy(&last, tail.p + n, MIN(tail.n, sizeof last));
    return crc64(0, bytes_of(tail.p, n)) + last;
}

/* -- writing ------------------------------------------------------------------------------------- */

static bool needs_quotes(const char *name)
{
    for (const char *s = name; *s; s++)
        if (!isgraph((u8)*s) || *s == '\\' || *s == '"' || *s == '\'') return true;
    return false;
}

static void print_name(struct buf *out, const char *name)
{
    if (needs_quotes(name)) buf_append_quoted(out, bytes_str(name));
    else buf_append_str(out, name);
}

static void print_type(const struct aof_manifest *m, enum aof_type type, struct buf *out)
{
    for (u32 i = 0; i < m->n; i++) {
        if (m->v[i].type != type) continue;
        buf_append_str(out, "file ");
        print_name(out, m->v[i].name);
        buf_printf(out, " seq %llu type %c\n", (unsigned long long)m->v[i].seq, type);
    }
}

void aof_manifest_print(const struct aof_manifest *m, struct buf *out)
{
    size_t from = out->n;
    print_type(m, AOF_BASE, out);
    print_type(m, AOF_HISTORY, out);
    print_type(m, AOF_INCREMENT, out);
    if (m->base_known)
        buf_printf(out, MARK_BASE "%016llx:%016llx\n", (unsigned long long)m->base_size,
                   (unsigned long long)m->base_tail);
    u64 crc = crc64(0, bytes_of(out->p + from, out->n - from));
    buf_printf(out, MARK "%016llx\n", (unsigned long long)crc);
}

bool aof_manifest_save(const struct aof_manifest *m, const char *folder, const char *name)
{
    struct buf text = {0};
    aof_manifest_print(m, &text);
    bool ok = disk_replace(folder, name, buf_bytes(&text));
    int error = errno;
    buf_release(&text);
    errno = error;
    return ok;
}

/* -- reading ------------------------------------------------------------------------------------- */

struct parsing {
    struct aof_manifest *m;
    bytes text;
    size_t at; /* start of the current line */
    u32 line;
    bool summed; /* the checksum line was read */
    struct request_parser words;
    const char *error;
};

static bool manifest_fail(struct parsing *p, const char *error)
{
    p->error = error;
    return false;
}

static bool is_word(const struct parsing *p, u32 i, const char *word)
{
    return bytes_is(request_word(&p->words, i), word);
}

static bool is_file_name(bytes name)
{
    if (name.n == 0 || name.n > AOF_NAME_MAX || memchr(name.p, '/', name.n) ||
        memchr(name.p, '\0', name.n))
        return false;
    return !bytes_eq(name, BYTES_LIT(".")) && !bytes_eq(name, BYTES_LIT(".."));
}

static bool add_file(struct parsing *p, bytes name, i64 seq, char type)
{
    struct aof_manifest *m = p->m;
    const struct aof_file *last = aof_manifest_last(m);
    char text[AOF_NAME_MAX + 1];
    if (!name.p || !is_file_name(name)) return manifest_fail(p, "a file's name must be a name, not a path");
    if (seq <= 0 || seq >= SEQ_MAX)
        return manifest_fail(p, "a sequence number is a positive number below 10^14");
    if (type != AOF_BASE && type != AOF_HISTORY && type != AOF_INCREMENT)
        return manifest_fail(p, "a file is of type b, h or i");
    if (type == AOF_BASE && aof_manifest_base(m)) return manifest_fail(p, "there is more than one base");
    if (type == AOF_INCREMENT && last && (u64)seq <= last->seq)
        return manifest_fail(p, "the sequence numbers of the increments do not rise");
    memcpy(text, name.p, name.n);
    text[name.n] = '\0';
    aof_manifest_add(m, (enum aof_type)type, (u64)seq, text);
    return true;
}

/* Pairs of a keyword and a value; a later Redis may have more keywords. */
static bool read_file_line(struct parsing *p, bytes line)
{
    bytes name = {0};
    bool named = false;
    i64 seq = 0;
    char type = 0;
    if (!request_split_words(&p->words, line)) return manifest_fail(p, "quotes are not closed");
    if (p->words.argc < 6 || p->words.argc % 2)
        return manifest_fail(p, "not \"file NAME seq NUMBER type LETTER\"");
    for (u32 i = 0; i < p->words.argc; i += 2) {
        bytes value = request_word(&p->words, i + 1);
        bool again = false;
        if (is_word(p, i, "file")) {
            again = named;
            named = true;
            name = value;
        } else if (is_word(p, i, "seq")) {
            again = seq;
            if (!num_parse_i64(value, &seq))
                return manifest_fail(p, "a sequence number is a positive number");
        } else if (is_word(p, i, "type")) {
            again = type;
            type = value.n == 1 ? value.p[0] : '?';
        }
        if (again) return manifest_fail(p, "a keyword is there twice");
    }
    return add_file(p, name, seq, type);
}

/* Sixteen digits, exactly as we print them. */
static bool read_hex(bytes b, u64 *v)
{
    char same[17];
    if (b.n < 16) return false;
    memcpy(same, b.p, 16);
    same[16] = '\0';
    *v = strtoull(same, NULL, 16);
    snprintf(same, sizeof same, "%016llx", (unsigned long long)*v);
    return memcmp(same, b.p, 16) == 0;
}

static bool manifest_begins(bytes line, const char *with)
{
    return line.n >= strlen(with) && memcmp(line.p, with, strlen(with)) == 0;
}

/* Our comments. A line that looks like one and is not exactly one is damage. */
static bool read_mark(struct parsing *p, bytes line)
{
    u64 crc;
    size_t head = strlen(MARK), base_head = strlen(MARK_BASE);
    if (manifest_begins(line, MARK_BASE)) {
        if (line.n != base_head + 33 || line.p[base_head + 16] != ':' ||
            !read_hex(bytes_of(line.p + base_head, 16), &p->m->base_size) ||
            !read_hex(bytes_of(line.p + base_head + 17, 16), &p->m->base_tail))
            return manifest_fail(p, "what it says of the base is damaged");
        p->m->base_known = true;
        return true;
    }
    if (line.n != head + 16 || !read_hex(bytes_of(line.p + head, 16), &crc))
        return manifest_fail(p, "its checksum is damaged");
    if (crc != crc64(0, bytes_of(p->text.p, p->at)))
        return manifest_fail(p, "its checksum is wrong (if you have edited it by hand, delete this line)");
    p->summed = true;
    return true;
}

static bytes trimmed(bytes line)
{
    while (line.n && strchr(" \t\r", line.p[line.n - 1])) line.n--;
    while (line.n && strchr(" \t", line.p[0])) line = bytes_of(line.p + 1, line.n - 1);
    return line;
}

static bool manifest_read_line(struct parsing *p, bytes line)
{
    if (p->summed) return manifest_fail(p, "something follows its checksum");
    if (memchr(line.p, '\0', line.n)) return manifest_fail(p, "there is a zero byte in it");
    if (manifest_begins(line, MARK)) return read_mark(p, line);
    if (line.n && line.p[0] == '#') return true;
    if (line.n >= LINE_MAX_BYTES) return manifest_fail(p, "the line is too long");
    line = trimmed(line);
    return line.n ? read_file_line(p, line) : manifest_fail(p, "the line is empty");
}

static int manifest_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name that occurs twice might be history, and be removed. */
static bool all_different(const struct aof_manifest *m)
{
    const char **names = mem_alloc(MAX(m->n, 1u) * sizeof *names);
    bool ok = true;
    for (u32 i = 0; i < m->n; i++) names[i] = m->v[i].name;
    qsort(names, m->n, sizeof *names, manifest_by_name);
    for (u32 i = 1; i < m->n; i++) ok = ok && strcmp(names[i - 1], names[i]) != 0;
    mem_free(names);
    return ok;
}

bool aof_manifest_parse(struct aof_manifest *m, bytes text, char error[256])
{
    struct parsing p = {.m = m, .text = text};
    bool ok = text.n || manifest_fail(&p, "it is empty");
    *m = (struct aof_manifest){0};
    request_parser_init(&p.words);
    while (ok && p.at < text.n) {
        const char *from = text.p + p.at, *end = memchr(from, '\n', text.n - p.at);
        p.line++;
        if (!end) ok = manifest_fail(&p, "the line does not end");
        else ok = manifest_read_line(&p, bytes_of(from, (size_t)(end - from)));
        if (ok) p.at += (size_t)(end - from) + 1;
    }
    if (ok && m->base_known && !aof_manifest_base(m))
        ok = manifest_fail(&p, "it tells of a base that it does not name");
    if (ok && !all_different(m)) ok = manifest_fail(&p, "a file is named twice");
    if (!ok) {
        snprintf(error, 256, "line %u: %s", p.line, p.error);
        aof_manifest_release(m);
    }
    request_parser_release(&p.words);
    return ok;
}

/* -1: see errno. */
static i64 manifest_read_all(int fd, struct buf *to)
{
    for (;;) {
        ssize_t n = read(fd, buf_reserve(to, 4096), 4096);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n;
        to->n += (size_t)n;
        if (to->n > MANIFEST_MAX) {
            errno = EFBIG;
            return -1;
        }
    }
}

err aof_manifest_load(struct aof_manifest *m, const char *folder, const char *name, char error[256])
{
    char path[4096];
    struct buf text = {0};
    *m = (struct aof_manifest){0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would block for ever */
    if (fd < 0 && errno == ENOENT) return ERR_NOT_FOUND;
    bool ok = fd >= 0 && manifest_read_all(fd, &text) == 0;
    if (!ok) snprintf(error, 256, "%s", strerror(errno));
    else ok = aof_manifest_parse(m, buf_bytes(&text), error);
    if (fd >= 0) close(fd);
    buf_release(&text);
    return ok ? OK : ERR_SYNTAX;
}
