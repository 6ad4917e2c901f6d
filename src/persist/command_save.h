/* A value as the commands that create it: for an AOF base without RDB preamble. Written in slices, under the
 * same conditions as rdb_save (rdb/rdb_value.h).
 *
 * Commands are never split: the sink gets whole ones, in pieces of about RDB_PIECE bytes, so it may insert
 * something between its pieces; and between two steps other keys may be written. */
#ifndef MAYFLY_PERSIST_COMMAND_SAVE_H
#define MAYFLY_PERSIST_COMMAND_SAVE_H

#include "rdb/rdb_value.h"
#include "script/functions.h"

#define COMMAND_SAVE_ELEMENTS 64 /* per command, as in Redis */

struct command_save {
    i64 budget;          /* what remains of the last step's budget; the rest is private to command_save.c */
    struct rdb_out *out;
    struct engine *eng;
    i64 now_ms;
    struct key_ref *ref;
    enum { COMMANDS_VALUE, COMMANDS_FIELD_TTLS, COMMANDS_TTL, COMMANDS_DONE } phase;
    bool walking;        /* the iterator of this phase is in use */
    u64 left;            /* elements left in this walk; bytes of a string */
    union element_walk walk;
    struct buf args;
    struct command_stream *stream;
};

/* A command of these words, then `more` words that are already bulk strings in `rest`. */
void command_put(struct rdb_out *out, size_t n, const bytes *words, size_t more, bytes rest);

void command_save_select(struct rdb_out *out, u32 db);
void command_save_functions(struct rdb_out *out, const struct function_set *set); /* NULL: none */

/* Begins a live value of the selected database as it was at job->now_ms; see rdb_save_begin. The checksum and
 * compression of `out` are not used. */
void command_save_begin(struct command_save *s, const struct rdb_job *job, struct key_ref *ref);

/* Continues for about `budget` bytes of work, up to the end of a command. True: the value is complete, or
 * writing has failed. If another database was selected since the last step, the caller selects this one again
 * first. */
bool command_save_step(struct command_save *s, u64 budget);

void command_save_release(struct command_save *s); /* also before the end */

#endif
