#ifndef MAYFLY_SERVER_SCRIPT_HOST_H
#define MAYFLY_SERVER_SCRIPT_HOST_H

#include "server/server.h"

/* Memory of scripts and functions: the interpreters, and what is kept outside them. */
struct script_usage {
    u64 eval_vm, eval, cached;
    u64 functions_vm, functions, function_count, libraries;
};
struct script_usage script_usage(const struct server *s);

/* Applies the configuration of scripts. */
void script_host_apply(struct server *s);

#endif
