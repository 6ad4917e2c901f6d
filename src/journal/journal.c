#include "journal/journal.h"

#include "base/num.h"
#include "resp/command.h"

void journal_attach(struct journal *j, struct journal_sink *sink)
{
    sink->next = j->sinks;
    j->sinks = sink;
    j->db = -1; /* the newcomer has seen no SELECT */
}

void journal_detach(struct journal *j, struct journal_sink *sink)
{
    for (struct journal_sink **at = &j->sinks; *at; at = &(*at)->next) {
        if (*at == sink) {
            *at = sink->next;
            return;
        }
    }
}

void journal_release(struct journal *j) { buf_release(&j->open.resp); }

void journal_effect(struct journal *j, u32 db, int argc, const bytes *argv)
{
    if (!journal_wanted(j)) return;
    if (j->db != (i64)db) {
        char digits[NUM_I64_LEN];
        bytes select[2] = {BYTES_LIT("SELECT"), bytes_of(digits, num_print_i64(digits, db))};
        resp_write_command(&j->open.resp, 2, select);
        j->db = db;
    }
    resp_write_command(&j->open.resp, argc, argv);
    j->open.effects++;
}

static void wrap_in_transaction(struct buf *b)
{
    struct buf whole = {0};
    bytes multi = BYTES_LIT("MULTI"), exec = BYTES_LIT("EXEC");
    resp_write_command(&whole, 1, &multi);
    buf_append_bytes(&whole, buf_bytes(b));
    resp_write_command(&whole, 1, &exec);
    buf_release(b);
    *b = whole;
}

void journal_abandon(struct journal *j)
{
    buf_clear(&j->open.resp);
    j->open.effects = 0;
    j->db = -1; /* a SELECT may have gone with it */
}

u64 journal_close(struct journal *j, i64 now_ms, u64 seed)
{
    if (j->open.effects == 0) return j->seq;
    if (j->open.effects > 1) wrap_in_transaction(&j->open.resp);
    j->open.seq = ++j->seq;
    j->open.now_ms = now_ms;
    j->open.seed = seed;
    for (struct journal_sink *s = j->sinks; s; s = s->next) s->append(s, &j->open);
    buf_clear(&j->open.resp);
    j->open.effects = 0;
    return j->seq;
}
