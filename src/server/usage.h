/* The options --help, --version and --check. */
#ifndef MAYFLY_SERVER_USAGE_H
#define MAYFLY_SERVER_USAGE_H

#include "base/types.h"

/* True: the command line had one of them, its output has been printed, and the process is to end with
 * *exit_code. */
bool usage_wanted(int argc, char **argv, int *exit_code);

#endif
