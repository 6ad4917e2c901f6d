/* Redis's glob patterns: * ? [a-z] [^x] \escape. Linear enough: a pattern with
 * many stars cannot make it exponential. */
#ifndef MAYFLY_BASE_GLOB_H
#define MAYFLY_BASE_GLOB_H

#include "base/bytes.h"

bool glob_match(bytes pattern, bytes s, bool ignore_case);

#endif
