#include "journal/journal.h"

#include "base/num.h"
#include "resp/command.h"

#define KEEP (64u << 10) /* capacity of a record's buffer that is kept for the next record */

void journal_attach(struct journal *j, struct journal_sink *sink)
{
    sink->next = j->sinks;
    j->sinks = sink;
    j->db = -1; /* the new sink has seen no SELECT */
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

static inline void journal_select_db(struct journal *j, u32 db)
{
    char digits[NUM_I64_LEN];
    if (j->db == (i64)db) return;
    bytes select[2] = {BYTES_LIT("SELECT"), bytes_of(digits, num_print_i64(digits, db))};
    resp_write_command(&j->open.resp, 2, select);
    j->db = db;
    if (!j->open.effects) j->open.select = j->open.resp.n;
}

void journal_effect(struct journal *j, u32 db, int argc, const bytes *argv)
{
    j->changed = true;
    if (!journal_wanted(j)) return;
    journal_select_db(j, db);
    resp_write_command(&j->open.resp, argc, argv);
    j->open.effects++;
}

void journal_effect_lent(struct journal *j, u32 db, int argc, const bytes *argv)
{
    struct journal_record *r = &j->open;
    j->changed = true;
    if (!journal_wanted(j)) return;
    CHECK(!r->lent.n);
    journal_select_db(j, db);
    resp_write_command_head(&r->resp, argc, argv);
    r->lent = argv[argc - 1];
    r->lent_at = r->resp.n;
    buf_append_str(&r->resp, "\r\n");
    r->effects++;
}

void journal_expired(struct journal *j, u32 db, bytes key)
{
    journal_effect(j, db, 2, (bytes[]){BYTES_LIT("DEL"), key});
    j->open.expired += journal_wanted(j);
}

/* A message needs a SELECT only if the stream has none yet: Redis never sends a command before one. */
void journal_message(struct journal *j, u32 db, int argc, const bytes *argv)
{
    const struct journal_sink *s = j->sinks;
    while (s && !s->messages) s = s->next;
    if (!s) return;
    if (j->db < 0) journal_select_db(j, db);
    resp_write_command(&j->open.resp, argc, argv);
    j->open.effects++;
    j->open.messages++;
}

#define BLOCK_BEGIN "*1\r\n$5\r\nMULTI\r\n"
#define BLOCK_END "*1\r\n$4\r\nEXEC\r\n"

/* A SELECT at the beginning stays before MULTI, as in Redis. */
static void wrap_in_transaction(struct journal_record *r)
{
    struct buf whole = {0};
    buf_append(&whole, r->resp.p, r->select);
    buf_append_str(&whole, BLOCK_BEGIN);
    buf_append(&whole, r->resp.p + r->select, r->resp.n - r->select);
    buf_append_str(&whole, BLOCK_END);
    buf_release(&r->resp);
    r->resp = whole;
    if (r->lent.n) r->lent_at += strlen(BLOCK_BEGIN);
    r->wrapped = true;
}

bytes journal_select(const struct journal_record *record) { return bytes_of(record->resp.p, record->select); }

bytes journal_effects(const struct journal_record *record)
{
    bytes rest = bytes_of(record->resp.p + record->select, record->resp.n - record->select);
    if (!record->wrapped) return rest;
    size_t begin = sizeof BLOCK_BEGIN - 1, end = sizeof BLOCK_END - 1;
    return bytes_of(rest.p + begin, rest.n - begin - end);
}

void journal_parts(const struct journal_record *record, bytes text, bytes part[JOURNAL_PARTS])
{
    size_t head = text.n;
    if (record->lent.n) head = record->lent_at - (size_t)(text.p - record->resp.p);
    part[0] = bytes_of(text.p, head);
    part[1] = record->lent;
    part[2] = bytes_of(text.p + head, text.n - head);
}

static void journal_clear_record(struct journal *j)
{
    buf_clear(&j->open.resp);
    if (UNLIKELY(j->open.resp.cap > KEEP)) buf_release(&j->open.resp);
    j->open.select = 0;
    j->open.lent.n = 0;
    j->open.effects = j->open.messages = j->open.expired = 0;
    j->changed = j->open.newer = j->open.wrapped = false;
}

void journal_abandon(struct journal *j)
{
    journal_clear_record(j);
    j->db = -1; /* it may have contained a SELECT */
}

u64 journal_close_record(struct journal *j, i64 now_ms, u64 seed)
{
    if (j->open.effects > 1 && j->open.expired < j->open.effects) wrap_in_transaction(&j->open);
    j->open.seq = ++j->seq;
    j->open.now_ms = now_ms;
    j->open.seed = seed;
    for (struct journal_sink *s = j->sinks; s; s = s->next) s->append(s, &j->open);
    if (journal_is_message(&j->open) && j->open.select)
        j->db = -1; /* sinks of data have not seen its SELECT */
    journal_clear_record(j);
    return j->seq;
}
