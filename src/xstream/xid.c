/* IDs of stream entries: parsing, as leniently as Redis does, and printing. */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"
#include "xstream/xstream.h"

#define ID_ARG_MAX 127 /* bytes; a longer argument is not a valid ID */

int stream_id_cmp(struct stream_id a, struct stream_id b)
{
    if (a.ms != b.ms) return a.ms < b.ms ? -1 : 1;
    return (a.seq > b.seq) - (a.seq < b.seq);
}

bool stream_id_incr(struct stream_id *id)
{
    if (++id->seq == 0 && ++id->ms == 0) {
        *id = STREAM_ID_MAX;
        return false;
    }
    return true;
}

bool stream_id_decr(struct stream_id *id)
{
    if (stream_id_zero(*id)) return false;
    if (id->seq-- == 0) id->ms--;
    return true;
}

bytes stream_id_print(char text[STREAM_ID_TEXT], struct stream_id id)
{
    int n = snprintf(text, STREAM_ID_TEXT, "%llu-%llu", (unsigned long long)id.ms,
                     (unsigned long long)id.seq);
    return bytes_of(text, (size_t)n);
}

void stream_id_pack(char to[STREAM_ID_RAW], struct stream_id id)
{
    u64 raw[2] = {htobe64(id.ms), htobe64(id.seq)};
    memcpy(to, raw, sizeof raw);
}

struct stream_id stream_id_unpack(const char *from)
{
    u64 raw[2];
    memcpy(raw, from, sizeof raw);
    return (struct stream_id){be64toh(raw[0]), be64toh(raw[1])};
}

/* -- reading ----------------------------------------------------------------------------------- */

/* An unsigned number as Redis parses it: leading spaces, a sign and leading zeros are allowed. */
static bool parse_part(const char *text, u64 *out)
{
    char *end;
    i64 v;
    if (num_parse_i64(bytes_str(text), &v)) {
        *out = (u64)v;
        return v >= 0;
    }
    errno = 0;
    *out = strtoull(text, &end, 10);
    return end != text && errno == 0 && *end == '\0';
}

static bool parse_parts(char *ms, u64 missing_seq, bool *seq_given, struct stream_id *id)
{
    char *seq = strchr(ms, '-');
    if (seq) *seq++ = '\0';
    if (!parse_part(ms, &id->ms)) return false;
    id->seq = missing_seq;
    if (!seq) return true;
    if (seq_given && strcmp(seq, "*") == 0) {
        *seq_given = false;
        id->seq = 0;
        return true;
    }
    return parse_part(seq, &id->seq);
}

bool stream_id_parse(bytes text, u64 missing_seq, bool strict, bool *seq_given, struct stream_id *id)
{
    char copy[ID_ARG_MAX + 1];
    if (text.n > ID_ARG_MAX) return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    if (seq_given) *seq_given = true;
    bool lowest = strcmp(copy, "-") == 0, highest = strcmp(copy, "+") == 0;
    if (!lowest && !highest) return parse_parts(copy, missing_seq, seq_given, id);
    *id = lowest ? STREAM_ID_MIN : STREAM_ID_MAX;
    return !strict;
}
