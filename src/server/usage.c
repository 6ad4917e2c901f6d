/* --help and --version. As with redis-server they count as the first argument
 * only, so that a later one of the same spelling stays a value. */
#include "server/usage.h"

#include <stdio.h>
#include <string.h>

#include "server/server.h"

static const char help[] =
    "Usage: mayfly-server [FILE] [-] [--directive value …]\n"
    "       mayfly-server --version | --help\n"
    "\n"
    "FILE is a configuration file; - reads directives from standard input. Every directive of\n"
    "the file can be given on the command line too, where it overrides the file. mayfly.conf\n"
    "explains them all.\n"
    "\n"
    "Examples:\n"
    "  mayfly-server                        the defaults: port 6379, in memory\n"
    "  mayfly-server /etc/mayfly.conf\n"
    "  mayfly-server --port 7777 --maxmemory 1gb --maxmemory-policy volatile-ttl\n"
    "  echo 'maxmemory 128mb' | mayfly-server -\n";

bool usage_wanted(int argc, char **argv, int *exit_code)
{
    if (argc < 2) return false;
    *exit_code = 0;
    if (!strcmp(argv[1], "-v") || !strcmp(argv[1], "--version")) {
        printf("Mayfly server v=%s redis=%s bits=64\n", MAYFLY_VERSION, REDIS_VERSION);
        return true;
    }
    if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) {
        fputs(help, stdout);
        return true;
    }
    *exit_code = 1;
    return false;
}
