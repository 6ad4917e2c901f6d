/* A digest of the data that does not depend on the order of keys, members or fields: two servers hold the
 * same dataset if and (almost certainly) only if their digests are equal. It is computed as in Redis, so a
 * Mayfly and a Redis can be compared, too. Of a deadline only its existence counts. */
#ifndef MAYFLY_SERVER_OBSERVE_DIGEST_H
#define MAYFLY_SERVER_OBSERVE_DIGEST_H

#include "base/sha1.h"
#include "keyspace/keyspace.h"

void digest_dataset(struct keyspace *ks, u8 out[SHA1_BYTES]);
void digest_value(struct keyspace *ks, struct key_ref *ref, u8 out[SHA1_BYTES]);

#endif
