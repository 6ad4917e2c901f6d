#include "engine/rocks/wal/wal_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#define CHECKSUM 4u
#define HEADER 7u
#define HEADER_WITH_LOG 11u
#define PAGE 4096u
#define BATCH_HEADER 12u

enum { TYPE_FULL = 1, TYPE_FIRST, TYPE_MIDDLE, TYPE_LAST, RECYCLED = 4, FIRST_NOTE = 9 };

struct fragment {
    u8 type;  /* of those above; RECYCLED is taken off */
    u32 size; /* with its header */
    bytes data;
    bool of_another_log; /* left from a file that was used again */
};

static u32 little_u32(const char *p)
{
    const u8 *b = (const u8 *)p;
    return (u32)b[0] | (u32)b[1] << 8 | (u32)b[2] << 16 | (u32)b[3] << 24;
}

static bool has_log_number(u8 type)
{
    return (type > RECYCLED && type < FIRST_NOTE) || type == 11 || type == 131;
}

static u32 header_size(u8 type) { return has_log_number(type) ? HEADER_WITH_LOG : HEADER; }

static u32 fragment_size(const char *p)
{
    return header_size((u8)p[6]) + ((u32)(u8)p[4] | (u32)(u8)p[5] << 8);
}

static u32 unmask(u32 crc)
{
    u32 rotated = crc - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
}

/* The fragment at p, in the rest of its block. False: there is no sound one. */
static bool fragment_at(const char *p, u32 room, u32 log, struct fragment *f)
{
    if (room < HEADER) return false;
    u8 type = (u8)p[6];
    u32 header = header_size(type), size = fragment_size(p);
    bool known = (type > 0 && type <= 11) || type >= 128;
    if (!known || size > room) return false;
    if (crc32c(bytes_of(p + 6, size - 6)) != unmask(little_u32(p))) return false;
    bool recycled = type > RECYCLED && type < FIRST_NOTE;
    *f = (struct fragment){
        .type = recycled ? (u8)(type - RECYCLED) : type,
        .size = size,
        .data = bytes_of(p + header, size - header),
        .of_another_log = header == HEADER_WITH_LOG && little_u32(p + HEADER) != log,
    };
    return true;
}

/* -- reading ------------------------------------------------------------------------------------ */

/* As much as there is, up to n bytes; -1: errno. */
static i64 read_at(int fd, char *p, size_t n, u64 offset)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, p + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (i64)done;
}

static bool wal_reader_load_block(struct wal_reader *r, u64 offset)
{
    i64 n = read_at(r->fd, r->block, WAL_BLOCK, offset);
    r->block_offset = offset;
    r->block_n = n < 0 ? 0 : (u32)n;
    r->at = 0;
    return n >= 0;
}

bool wal_reader_open(struct wal_reader *r, const char *path, u64 number, size_t keep)
{
    r->record = (struct buf){0};
    r->offset = r->end = r->bad = 0;
    r->partial = r->refuted = false;
    r->number = (u32)number;
    r->keep = keep;
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) return false;
    if (wal_reader_load_block(r, 0)) return true;
    close(r->fd);
    return false;
}

void wal_reader_close(struct wal_reader *r)
{
    close(r->fd);
    buf_release(&r->record);
}

static u64 wal_reader_position(const struct wal_reader *r) { return r->block_offset + r->at; }

static enum wal_found found_bad(struct wal_reader *r)
{
    r->bad = wal_reader_position(r);
    if (!r->partial) r->offset = r->bad;
    return WAL_BAD;
}

static void wal_reader_keep(struct wal_reader *r, bytes data)
{
    size_t room = r->keep - MIN(r->keep, r->record.n);
    buf_append(&r->record, data.p, MIN(data.n, room));
}

/* Takes a sound fragment. WAL_END: the record continues in the next one. */
static enum wal_found wal_reader_take(struct wal_reader *r, const struct fragment *f)
{
    bool begins = f->type == TYPE_FULL || f->type == TYPE_FIRST;
    bool ends = f->type == TYPE_FULL || f->type == TYPE_LAST;
    if (begins == r->partial) { /* a record without an end, or without a beginning */
        r->refuted = begins;
        return found_bad(r);
    }
    if (begins) {
        buf_clear(&r->record);
        r->offset = wal_reader_position(r);
    }
    wal_reader_keep(r, f->data);
    r->at += f->size;
    r->partial = !ends;
    if (!ends) return WAL_END;
    r->end = wal_reader_position(r);
    return WAL_RECORD;
}

enum wal_found wal_reader_next(struct wal_reader *r)
{
    struct fragment f;
    for (;;) {
        u32 room = r->block_n - r->at;
        if (r->block_n == WAL_BLOCK && room < HEADER) {
            if (!wal_reader_load_block(r, r->block_offset + WAL_BLOCK)) return WAL_FAILED;
            continue;
        }
        if (room == 0) return r->partial ? found_bad(r) : WAL_END;
        if (!fragment_at(r->block + r->at, room, r->number, &f)) return found_bad(r);
        if (f.of_another_log) return r->partial ? found_bad(r) : WAL_END;
        if (f.type >= FIRST_NOTE) {
            r->at += f.size;
            continue;
        }
        enum wal_found found = wal_reader_take(r, &f);
        if (found != WAL_END) return found;
    }
}

/* -- what is behind ------------------------------------------------------------------------------ */

/* In the block of the bad fragment, whose size is not to be trusted, one may begin at any byte. */
static bool sound_in_block(const struct wal_reader *r)
{
    struct fragment f;
    for (u32 at = (u32)(r->bad - r->block_offset) + 1; at + HEADER <= r->block_n; at++)
        if (fragment_at(r->block + at, r->block_n - at, r->number, &f) && !f.of_another_log) return true;
    return false;
}

/* Each block begins with a fragment. */
bool wal_reader_sound_behind(struct wal_reader *r)
{
    struct fragment f;
    if (r->refuted || sound_in_block(r)) return true;
    while (r->block_n == WAL_BLOCK && wal_reader_load_block(r, r->block_offset + WAL_BLOCK))
        if (fragment_at(r->block, r->block_n, r->number, &f) && !f.of_another_log) return true;
    return false;
}

static bool only_zeros(const char *p, size_t n)
{
    while (n > 0 && *p == 0) p++, n--;
    return n == 0;
}

bool wal_reader_at_hole(const struct wal_reader *r)
{
    char page[PAGE];
    u64 from = r->bad / PAGE * PAGE;
    u32 used = (u32)(r->bad - from);
    if (PAGE - used < CHECKSUM) from += PAGE, used = 0; /* too little to tell */
    for (u64 at = from; at < from + WAL_BLOCK; at += PAGE, used = 0)
        if (read_at(r->fd, page, PAGE, at) == PAGE && only_zeros(page + used, PAGE - used)) return true;
    return false;
}

bool wal_reader_torn(const struct wal_reader *r)
{
    struct stat st;
    u32 at = (u32)(r->bad - r->block_offset), room = r->block_n - at;
    const char *p = r->block + at;
    if (fstat(r->fd, &st) != 0 || (u64)st.st_size > r->block_offset + r->block_n) return false;
    if (room < HEADER || fragment_size(p) > room) return true;
    return only_zeros(p, room);
}

bool wal_batch(bytes record, u64 *sequence, u32 *rows)
{
    if (record.n < BATCH_HEADER) return false;
    *sequence = (u64)little_u32(record.p + 4) << 32 | little_u32(record.p);
    *rows = little_u32(record.p + 8);
    return true;
}
