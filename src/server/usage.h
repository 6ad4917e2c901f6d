/* What --help and --version print, and --check does. */
#ifndef MAYFLY_SERVER_USAGE_H
#define MAYFLY_SERVER_USAGE_H

#include "base/types.h"

/* True: the command line asked for this, it has been printed to standard output,
 * and the process is to end with *exit_code. */
bool usage_wanted(int argc, char **argv, int *exit_code);

#endif
