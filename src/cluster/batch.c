#include "cluster/batch.h"

#define LIMIT_US 5000
#define PERIODS 8 /* at most */
#define SKIP_MAX 64

u64 batch_committed(struct batch *b, u32 answered, u32 waiting, u64 took_us)
{
    bool skip = b->skip > 0;
    b->skip -= skip;
    if (answered + waiting < 2 || !answered || skip) return 0;
    b->gathering = true;
    b->waiting = waiting;
    b->expected = waiting + answered;
    b->seen = waiting;
    b->period_us = MIN(took_us, LIMIT_US) + 1;
    b->left_us = MIN((PERIODS - 1) * b->period_us, LIMIT_US - MIN(b->period_us, LIMIT_US));
    return b->period_us;
}

u64 batch_look(struct batch *b, u32 waiting)
{
    u32 came = waiting > b->seen ? waiting - b->seen : 0;
    u64 us = came > 2 * b->waiting ? MIN(b->period_us, b->left_us) : 0;
    b->seen = waiting;
    b->left_us -= us;
    return us;
}

void batch_end(struct batch *b, u32 waiting)
{
    u32 answered = b->expected - b->waiting, back = waiting > b->waiting ? waiting - b->waiting : 0;
    bool in_vain = back < answered - answered / 2;
    b->gathering = false;
    b->next_skip = in_vain ? MIN(MAX(b->next_skip * 2, 1u), SKIP_MAX) : 0;
    b->skip = b->next_skip;
}
