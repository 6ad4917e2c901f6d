/* What the system shows of the process and does to it: its title in the process list, its place among the
 * victims of the out-of-memory killer, huge pages. */
#ifndef MAYFLY_SERVER_PROCESS_H
#define MAYFLY_SERVER_PROCESS_H

#include "base/types.h"

struct server;

struct process {
    char *title;      /* where the kernel looks for the command line; NULL: it can't be changed … */
    size_t title_room;/* … and how long it may get */
    char *name;       /* as the program was called */
    bool oom_adjusted;/* oom_score_adj was changed … */
    int oom_before;   /* … from this */
};

/* In main, when the arguments have been read: they are overwritten by the title. The environment moves
 * elsewhere. */
void process_init(struct process *p, int argc, char **argv);

void process_start(struct server *s);        /* disable-thp */
void process_apply_config(struct server *s); /* the title, and the score: at start, after CONFIG SET … */
void process_apply_role(struct server *s);   /* … and the score when the role has changed */

#endif
