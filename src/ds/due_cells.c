#include "ds/due_cells.h"

static i64 cell_mean(const struct due_cell *c, u32 level, i64 from_ms, i64 width_ms)
{
    if (c->keys > DUE_MEAN_KEYS) return from_ms + width_ms / 2;
    u64 offset_256ths = ((u64)c->past << 8) / (u32)c->keys;
    return from_ms + MIN((i64)(offset_256ths << due_unit_shift(level) >> 8), width_ms - 1);
}

void due_cells_each(const struct due_cell *cells, u32 level, i64 bucket, due_span_fn fn, void *arg)
{
    const i64 width_ms = 1ll << DUE_CELL_SHIFT(level);
    for (u32 i = 0; i < DUE_CELLS; i++) {
        const struct due_cell *c = &cells[i];
        if (c->keys <= 0) continue;
        i64 from_ms = (i64)((u64)bucket << DUE_PLACE_SHIFT(level)) + i * width_ms;
        fn(arg, &(struct due_span){
            .from_ms = from_ms,
            .to_ms = from_ms > INT64_MAX - width_ms ? INT64_MAX : from_ms + width_ms,
            .mean_ms = cell_mean(c, level, from_ms, width_ms),
            .keys = (u64)c->keys,
        });
    }
}
