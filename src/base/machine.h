/* How much memory this process may use: that of the machine, or less if its control group has a limit. */
#ifndef MAYFLY_BASE_MACHINE_H
#define MAYFLY_BASE_MACHINE_H

#include "base/types.h"

/* The smallest of the machine's memory and all limits of control groups, v1 and v2, that apply. */
u64 machine_memory(void);

/* The smallest limit of the process's control group and its ancestors; UINT64_MAX: none. Files are read below
 * `root`, which is "" except in tests: proc/self/cgroup, proc/self/mountinfo, and the mounted cgroup
 * trees. */
u64 cgroup_memory_limit(const char *root);

#endif
