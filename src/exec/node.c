#include "exec/node.h"

#include "exec/functions.h"

void node_init(struct node *n, u64 seed)
{
    *n = (struct node){0};
    evictor_init(&n->evictor, seed);
}

void node_release(struct node *n)
{
    evictor_release(&n->evictor);
    scripts_release(n);
    functions_release(n);
}
