/* The process as the system sees it: its title in the process list, its oom_score_adj, huge pages. */
#ifndef MAYFLY_SERVER_PROCESS_H
#define MAYFLY_SERVER_PROCESS_H

#include "base/types.h"

struct server;

struct process {
    char *title;      /* where the kernel reads the command line; NULL: it can't be changed … */
    size_t title_room;/* … and its maximum length */
    char *name;       /* argv[0] */
    bool oom_adjusted;/* oom_score_adj was changed … */
    int oom_before;   /* … from this */
};

/* Call it in main, after the arguments were read: the title overwrites them, and the environment is moved. */
void process_init(struct process *p, int argc, char **argv);

void process_start(struct server *s);        /* disable-thp */
void process_apply_config(struct server *s); /* the title and oom_score_adj: at start, after CONFIG SET … */
void process_apply_role(struct server *s);   /* … and oom_score_adj after a change of role */

#endif
