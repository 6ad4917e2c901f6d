/* Shared by the files of hash commands: deadlines as arguments, and stating effects.
 *
 * A reader of the journal keeps a field until it gets a delete, so it may still have fields that are dead,
 * and hidden, here. An effect must not depend on whether they are there. */
#ifndef MAYFLY_COMMAND_COLLECTION_HASH_H
#define MAYFLY_COMMAND_COLLECTION_HASH_H

#include "command/ttl.h"

/* Parses the deadline of fields, like ttl_parse, but within Redis's limit for fields; never negative. False:
 * an error was replied. */
NODISCARD bool hash_parse_deadline(struct ctx *c, bytes arg, enum ttl_unit unit, bool absolute, i64 *out);

/* An effect made of a few leading words and n arguments: fields, or field-value pairs. */
void hash_state(struct ctx *c, int words, const bytes *word, int n, const bytes *args);
#define HASH_STATE(c, n, args, ...)                                                            \
    hash_state((c), (int)(sizeof((bytes[]){__VA_ARGS__}) / sizeof(bytes)), (bytes[]){__VA_ARGS__}, \
               (n), (args))

/* The next effect is unknown to Redis 7.0. */
void hash_state_newer(struct ctx *c);

/* States that these n fields now have the deadline: HPEXPIREAT, with the condition (NX …) they met, as Redis
 * has it; empty: none. */
void hash_state_deadline(struct ctx *c, i64 deadline_ms, bytes condition, int n, const bytes *fields);

/* … the same for one field, if it has one. */
void hash_state_own_deadline(struct ctx *c, struct key_ref *ref, bytes field);

/* These n fields of argv[1] were deleted: event, effect, and the hash itself if none is left. */
void hash_report_deleted(struct ctx *c, struct key_ref *ref, int n, const bytes *fields);

/* The one way to put a field into a hash. A dead field of that name expires first, as a dead key does under a
 * write: it is reported, and a reader of the journal deletes it. True: the field is new. */
bool hash_put(struct ctx *c, struct key_ref *ref, bytes field, bytes value, bool keep_deadline);

#endif
