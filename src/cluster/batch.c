#include "cluster/batch.h"

#define LIMIT_US 5000
#define SKIP_MAX 64

u64 batch_committed(struct batch *b, u32 answered, u32 waiting, u64 took_us)
{
    bool skip = b->skip > 0;
    b->skip -= skip;
    if (answered + waiting < 2 || !answered || skip) return 0;
    b->gathering = true;
    b->waiting = waiting;
    b->expected = waiting + answered;
    return MIN(took_us, LIMIT_US) + 1;
}

void batch_end(struct batch *b, u32 waiting)
{
    u32 answered = b->expected - b->waiting, back = waiting > b->waiting ? waiting - b->waiting : 0;
    bool in_vain = back < answered - answered / 2;
    b->gathering = false;
    b->next_skip = in_vain ? MIN(MAX(b->next_skip * 2, 1u), SKIP_MAX) : 0;
    b->skip = b->next_skip;
}
