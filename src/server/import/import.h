/* mayfly-server --import-rdb FILE … --to HOST:PORT: loads RDB files into a cluster, or a server, that runs.
 *
 * A file is read a slice at a time into an empty keyspace of this process, by the loader that a server uses,
 * and its keys leave as RESTORE commands for the nodes that lead their slots. So any file that a server loads
 * can be imported, and memory holds one slice. A slice has arrived before the next one is read: an import
 * that was interrupted resumes at the offset it printed last. */
#ifndef MAYFLY_SERVER_IMPORT_IMPORT_H
#define MAYFLY_SERVER_IMPORT_IMPORT_H

#include "base/types.h"

/* True: the command line asks for an import, which has ended, and the process is to end with *exit_code. */
bool import_wanted(int argc, char **argv, int *exit_code);

#endif
