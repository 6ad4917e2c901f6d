#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void check_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "mayfly: broken invariant: %s (%s:%d)\n", what, file, line);
    abort();
}
