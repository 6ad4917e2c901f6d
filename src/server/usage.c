/* --help, --version and --check. As in redis-server they count only as the first argument, so that a later
 * one of the same spelling stays a value. */
#include "server/usage.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "server/storage.h"

static const char help[] =
    "Usage: mayfly-server [FILE] [-] [--directive value …]\n"
    "       mayfly-server --check DIR\n"
    "       mayfly-server --import-rdb FILE [FILE …] --to HOST:PORT [--replace] [--db N]\n"
    "       mayfly-server --version | --help\n"
    "\n"
    "FILE is a configuration file; - reads directives from standard input. Every directive of\n"
    "the file can be given on the command line too, where it overrides the file. mayfly.conf\n"
    "explains them all.\n"
    "\n"
    "--check verifies the database that a server with `engine rocksdb` and `dir DIR` left there;\n"
    "no server may have it open. The exit code is 0 if it is sound, 1 if not, 2 if it can't be read.\n"
    "\n"
    "--import-rdb with --to loads RDB files into a cluster or a server that runs; --to alone lists its\n"
    "options.\n"
    "\n"
    "Examples:\n"
    "  mayfly-server                        the defaults: port 6379, in memory, logged to ./appendonlydir\n"
    "  mayfly-server /etc/mayfly.conf\n"
    "  mayfly-server --engine rocksdb --dir /var/lib/mayfly\n"
    "  mayfly-server --engine rocksdb --dir /var/lib/mayfly --import-rdb dump.rdb\n"
    "  mayfly-server --port 7777 --maxmemory 1gb --maxmemory-policy volatile-ttl\n"
    "  echo 'maxmemory 128mb' | mayfly-server -\n";

bool usage_wanted(int argc, char **argv, int *exit_code)
{
    if (argc < 2) return false;
    *exit_code = 0;
    if (!strcmp(argv[1], "-v") || !strcmp(argv[1], "--version")) {
        /* Scripts parse redis-server's fields. */
        printf("Redis server v=%s sha=00000000:0 malloc=%s bits=64 build=0 mayfly=%s\n", REDIS_VERSION,
               mem_allocator_name(), MAYFLY_VERSION);
        return true;
    }
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) {
        fputs(help, stdout);
        return true;
    }
    if (argc == 3 && !strcmp(argv[1], "--check")) {
        *exit_code = storage_check(argv[2]);
        return true;
    }
    *exit_code = 1;
    return false;
}
