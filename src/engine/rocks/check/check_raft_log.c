/* Checks the Raft logs: the entries of each region have no gap from the compaction point on, and terms never
 * decrease. */
#include "engine/rocks/check/check.h"

/* A region's log while its rows are read; its state comes first. */
struct check_log {
    u64 region;
    u64 index, term; /* of the last entry seen, or of the compaction point */
};

static void check_log_entry(struct check *c, struct check_log *at, u64 index, bytes value)
{
    u64 term;
    u8 type;
    bytes data;
    c->log_entries++;
    if (index != at->index + 1)
        check_problem(c, NULL, "the Raft log of region %llu has entry %llu after %llu", LLU(at->region),
                      LLU(index), LLU(at->index));
    at->index = index;
    if (!codec_log_entry_read(value, &term, &type, &data)) {
        check_problem(c, NULL, "entry %llu of the Raft log of region %llu can't be decoded", LLU(index),
                      LLU(at->region));
        return;
    }
    if (term < at->term)
        check_problem(c, NULL, "entry %llu of the Raft log of region %llu has term %llu, but the one before "
                      "it %llu", LLU(index), LLU(at->region), LLU(term), LLU(at->term));
    at->term = term;
}

static void check_log_state(struct check *c, struct check_log *at, enum codec_log_row row, bytes value)
{
    u64 hard[3] = {0}, point[2] = {0};
    bool point_row = row == CODEC_LOG_POINT;
    if (!codec_log_numbers_read(value, point_row ? point : hard, point_row ? 2 : 3))
        check_problem(c, NULL, "the %s of the Raft log of region %llu can't be decoded",
                      point_row ? "compaction point" : "hard state", LLU(at->region));
    if (!point_row) return;
    at->index = point[0];
    at->term = point[1];
}

static void check_log_row(struct check *c, struct check_log *at, bytes key, bytes value)
{
    u64 region, index;
    enum codec_log_row row;
    if (!codec_log_key_read(key, &region, &index, &row)) {
        struct buf name = {0};
        check_quote(&name, key);
        check_problem(c, NULL, "the row %.*s of raft_log can't be decoded", (int)name.n, name.p);
        buf_release(&name);
        return;
    }
    if (!c->log_regions || region != at->region) {
        *at = (struct check_log){.region = region};
        c->log_regions++;
    }
    if (row == CODEC_LOG_ENTRY) check_log_entry(c, at, index, value);
    else check_log_state(c, at, row, value);
}

void check_raft_log(struct check *c)
{
    struct check_log at = {0};
    struct store_iter *it = store_iter(c->session, FAM_RAFT_LOG, (bytes){0}, (bytes){0}, STORE_ONCE);
    for (store_seek_first(it); store_valid(it); store_next(it))
        check_log_row(c, &at, store_key(it), store_iter_value(it));
    store_iter_done(it);
    if (c->failed) check_problem(c, NULL, "the Raft log can't be read (a file is damaged)");
    c->failed = false;
}
