/* The subcommands of DEBUG that are not in debug.c. */
#ifndef MAYFLY_SERVER_OBSERVE_DEBUG_PARTS_H
#define MAYFLY_SERVER_OBSERVE_DEBUG_PARTS_H

#include "base/bytes.h"

struct ctx;

/* save_cmd.c: loading data */
void debug_reload(struct ctx *c);
void debug_loadaof(struct ctx *c);

/* debug_inspect.c: how values are stored, and self-tests */
void debug_listpack(struct ctx *c);
void debug_quicklist(struct ctx *c);
void debug_htstats(struct ctx *c);
void debug_htstats_key(struct ctx *c);
void debug_stringmatch_len(struct ctx *c);
void debug_stringmatch_test(struct ctx *c);

/* debug_fence.c: replies that wait for fences */
void debug_fence(struct ctx *c);

/* debug_switch.c: features switched off, or failures on purpose */
void debug_set_disable_deny_scripts(struct ctx *c);
void debug_set_skip_checksum_validation(struct ctx *c);
void debug_pause_cron(struct ctx *c);
void debug_replybuffer(struct ctx *c);
void debug_no_effect(struct ctx *c);
void debug_raft_diverge(struct ctx *c);
void debug_change_repl_id(struct ctx *c);
void debug_replicate(struct ctx *c);
void debug_config_rewrite_force_all(struct ctx *c);
void debug_leak(struct ctx *c);
void debug_oom(struct ctx *c);

#endif
