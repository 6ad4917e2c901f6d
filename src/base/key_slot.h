/* The slot of a key, as in Redis Cluster: CRC16 (XMODEM) of its hash tag, or of all of it, modulo 16384. The
 * hash tag is what stands between the first '{' and the first '}' after it, unless that is nothing. */
#ifndef MAYFLY_BASE_KEY_SLOT_H
#define MAYFLY_BASE_KEY_SLOT_H

#include "base/bytes.h"

#define KEY_SLOTS 16384

u16 key_slot(bytes key);

#endif
