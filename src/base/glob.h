/* Redis's glob patterns: * ? [a-z] [^x] \escape. Time is at most pattern length times string length, even for
 * patterns with many stars. */
#ifndef MAYFLY_BASE_GLOB_H
#define MAYFLY_BASE_GLOB_H

#include "base/bytes.h"

bool glob_match(bytes pattern, bytes s, bool ignore_case);

#endif
