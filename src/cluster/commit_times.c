#include "cluster/commit_times.h"

const u32 commit_times_edges_us[COMMIT_TIMES_EDGES] = {
    100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000, 5000000};

void commit_times_add(struct commit_times *t, u64 took_us)
{
    u32 i = 0;
    while (i < COMMIT_TIMES_EDGES && took_us > commit_times_edges_us[i]) i++;
    t->count[i]++;
    t->sum_us += took_us;
}
