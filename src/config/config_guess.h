/* "Did you mean": the directive whose name is closest to an unknown one. */
#ifndef MAYFLY_CONFIG_CONFIG_GUESS_H
#define MAYFLY_CONFIG_CONFIG_GUESS_H

#include "base/bytes.h"

/* NULL: none is close enough. */
const char *config_guess(bytes name);

#endif
