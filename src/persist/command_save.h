/* A value as the commands that make it: for an AOF's base without RDB preamble. Written in slices, as
 * rdb_save does (rdb/rdb_value.h), under the same conditions.
 *
 * Commands are never cut: the sink gets whole ones, in pieces of RDB_PIECE and what one command is longer,
 * so that it may put something between its pieces; and between two steps other keys may be written. */
#ifndef MAYFLY_PERSIST_COMMAND_SAVE_H
#define MAYFLY_PERSIST_COMMAND_SAVE_H

#include "rdb/rdb_value.h"
#include "script/functions.h"

#define COMMAND_SAVE_ELEMENTS 64 /* in a command, as in Redis */

struct command_save {
    i64 budget;          /* what is left of the last step's; the rest is command_save.c's own */
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms;
    struct key_ref *ref;
    enum { COMMANDS_VALUE, COMMANDS_FIELD_TTLS, COMMANDS_TTL, COMMANDS_DONE } phase;
    bool walking;        /* the iterator of this phase is in use */
    u64 left;            /* elements in this walk; bytes of a string */
    union element_walk walk;
    struct buf args;
    struct command_stream *stream;
};

/* A command of these words, then `more` that are in `rest` as bulk strings already. */
void command_put(struct rdb_out *out, size_t n, const bytes *words, size_t more, bytes rest);

void command_save_select(struct rdb_out *out, u32 db);
void command_save_functions(struct rdb_out *out, const struct function_set *set); /* NULL: none */

/* Begins a live value of the selected database as it was at job->now_ms; see rdb_save_begin. The out's
 * checksum and compression are of no use here. */
void command_save_begin(struct command_save *s, const struct rdb_job *job, struct key_ref *ref);

/* Goes on for about `budget` bytes of work, to the end of a command. True: the value is complete, or the
 * writing has failed. Whoever has selected another database since the last step selects this one again. */
bool command_save_step(struct command_save *s, u64 budget);

void command_save_release(struct command_save *s); /* also before the end */

#endif
