/* Internals of the sandbox, for script_*.c only. */
#ifndef MAYFLY_SCRIPT_SCRIPT_VM_H
#define MAYFLY_SCRIPT_SCRIPT_VM_H

#include "script/script.h"

#define SCRIPT_KEEP (64 * 1024) /* bytes of a buffer that are kept for the next command */
#define SCRIPT_STEP 1000        /* instructions between two checks of the clock … */
#define SCRIPT_STEP_BYTES (8ull << 30) /* … fewer if that many could process more memory than this */
#define SCRIPT_READONLY "Attempt to modify a readonly table"

/* Pushes the table behind a proxy; false: it is no proxy, and nothing is pushed. */
bool script_push_real(lua_State *L, int index);
bool script_is_frozen(lua_State *L, int index);

/* Pushes what getmetatable returns for any value. */
void script_push_metatable(lua_State *L, int index);

/* lua_load for text only: bytecode is a syntax error. */
int script_load(lua_State *L, lua_Reader reader, void *arg, const char *chunk);
int script_load_text(lua_State *L, bytes source, const char *chunk);

/* Replies with an error of this text, whose table is at `error` (an absolute index). The error of a command
 * is not counted again. */
void script_reply_error(lua_State *L, int error, struct reply *out, const char *text);

/* Calls the function below `args` arguments, with the hook set and within the memory limit; leaves its one
 * result or the error. Returns lua_pcall's codes. */
int script_guarded(struct script_run *run, int args);

/* How many instructions may run before the hook is called: a single one (a concatenation, a comparison, a
 * library call) may process all memory there is. */
static inline int script_step(const struct script_vm *vm)
{
    u64 most = SCRIPT_STEP_BYTES / MAX(vm->used, 1u);
    return (int)MAX(MIN(most, SCRIPT_STEP), 1u);
}

/* Makes the state's hook, if it has one, be called that often. */
void script_watch(lua_State *L);

/* Frees all garbage. */
void script_vm_collect(struct script_vm *vm);

/* Whether the hook has ended it, or would at once. */
static inline bool script_is_ended(const struct script_run *run)
{
    return run && (run->killed || run->stopped || run->too_long);
}

/* The error of a script that was ended; NULL: it was not. */
const char *script_end_text(const struct script_run *run);

/* It has ended: other clients need not be served any more. */
void script_end_busy(struct script_run *run);

#endif
