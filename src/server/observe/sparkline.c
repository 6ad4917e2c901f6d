/* Each row of the chart is three steps high: the top cell of a bar shows which of them it reaches (_ o #),
 * the cells below are full (|). */
#include "server/observe/sparkline.h"

#define ROWS 4
#define STEPS_PER_ROW 3
#define STEPS (ROWS * STEPS_PER_ROW)

struct scale {
    u32 low, range;
};

static char cell(const struct scale *s, u32 value, u32 row)
{
    u32 step = (u32)((u64)(value - s->low) * STEPS / s->range);
    i64 part = (i64)MIN(step, STEPS - 1u) - (i64)(ROWS - 1 - row) * STEPS_PER_ROW;
    if (part < 0) return ' ';
    return part < STEPS_PER_ROW ? "_o#"[part] : '|';
}

static void draw_bars(struct buf *out, const struct scale *s, const struct spark *spark, u32 n)
{
    for (u32 row = 0; row < ROWS; row++) {
        for (u32 i = 0; i < n; i++) buf_append_char(out, cell(s, spark[i].value, row));
        buf_append_char(out, '\n');
    }
}

static void draw_labels(struct buf *out, const struct spark *spark, u32 n)
{
    size_t longest = 0;
    for (u32 i = 0; i < n; i++) longest = MAX(longest, strlen(spark[i].label));
    for (u32 i = 0; i < n; i++) buf_append_char(out, ' '); /* a gap below the bars */
    buf_append_char(out, '\n');
    for (size_t at = 0; at < longest; at++) {
        for (u32 i = 0; i < n; i++)
            buf_append_char(out, at < strlen(spark[i].label) ? spark[i].label[at] : ' ');
        buf_append_char(out, '\n');
    }
}

void sparkline(struct buf *out, const struct spark *spark, u32 n)
{
    struct scale s = {UINT32_MAX, 0};
    u32 high = 0;
    for (u32 i = 0; i < n; i++) {
        s.low = MIN(s.low, spark[i].value);
        high = MAX(high, spark[i].value);
    }
    s.range = MAX(high - MIN(s.low, high), 1u);
    for (u32 from = 0; from < n; from += SPARK_COLUMNS) {
        u32 columns = MIN(n - from, (u32)SPARK_COLUMNS);
        if (from) buf_append_char(out, '\n');
        draw_bars(out, &s, spark + from, columns);
        draw_labels(out, spark + from, columns);
    }
}
