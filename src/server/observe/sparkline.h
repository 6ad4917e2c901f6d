/* A small bar chart in ASCII: LATENCY GRAPH. */
#ifndef MAYFLY_SERVER_OBSERVE_SPARKLINE_H
#define MAYFLY_SERVER_OBSERVE_SPARKLINE_H

#include "base/buf.h"

#define SPARK_COLUMNS 80
#define SPARK_LABEL 24

struct spark {
    u32 value;
    char label[SPARK_LABEL]; /* written vertically under the bar */
};

/* Appends the chart, SPARK_COLUMNS bars per strip, all strips at the same scale. */
void sparkline(struct buf *out, const struct spark *spark, u32 n);

#endif
