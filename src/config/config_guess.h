/* "Did you mean": the directive whose name is nearest to one that does not exist. */
#ifndef MAYFLY_CONFIG_CONFIG_GUESS_H
#define MAYFLY_CONFIG_CONFIG_GUESS_H

#include "base/bytes.h"

/* NULL: none is near enough to be worth a mention. */
const char *config_guess(bytes name);

#endif
