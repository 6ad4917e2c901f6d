#include "base/err.h"

#include "base/crash.h"

_Noreturn void check_failed(const char *what, const char *file, int line)
{
    crash_panic("=== ASSERTION FAILED ===\n==> %s:%d '%s' is not true", file, line, what);
}
