/* The subcommands of DEBUG that load data: save_cmd.c. */
#ifndef MAYFLY_SERVER_DEBUG_LOAD_H
#define MAYFLY_SERVER_DEBUG_LOAD_H

struct ctx;

void debug_reload(struct ctx *c);
void debug_loadaof(struct ctx *c);

#endif
