/* The inside of the sandbox: for script_*.c alone. */
#ifndef MAYFLY_SCRIPT_SCRIPT_VM_H
#define MAYFLY_SCRIPT_SCRIPT_VM_H

#include "script/script.h"

#define SCRIPT_KEEP (64 * 1024) /* bytes of a buffer that are kept for the next command */
#define SCRIPT_STEP 1000        /* instructions between two looks at the clock … */
#define SCRIPT_STEP_BYTES (8ull << 30) /* … fewer if as many of them could go through more memory than this */
#define SCRIPT_READONLY "Attempt to modify a readonly table"

/* The table behind a stand-in is pushed; false: it is none, and nothing is. */
bool script_push_real(lua_State *L, int index);
bool script_is_frozen(lua_State *L, int index);

/* What getmetatable shows of any value. */
void script_push_metatable(lua_State *L, int index);

/* lua_load for text alone: what begins like bytecode is a syntax error like any other. */
int script_load(lua_State *L, lua_Reader reader, void *arg, const char *chunk);
int script_load_text(lua_State *L, bytes source, const char *chunk);

/* Replies with an error of this text, whose table is at `error` (no relative index). What was the error of a
 * command is not counted again. */
void script_reply_error(lua_State *L, int error, struct reply *out, const char *text);

/* Calls the function that stands below `args` arguments, under the watch of the hook and within the limit of
 * memory; its one result or the error is left. lua_pcall's codes. */
int script_guarded(struct script_run *run, int args);

/* How many instructions may pass until the hook is called: one of them (a concatenation, a comparison, a call
 * of a library) may go through all the memory there is. */
static inline int script_step(const struct script_vm *vm)
{
    u64 most = SCRIPT_STEP_BYTES / MAX(vm->used, 1u);
    return (int)MAX(MIN(most, SCRIPT_STEP), 1u);
}

/* Has the hook of a state, if it has one, called as often as that. */
void script_watch(lua_State *L);

/* Gets rid of all garbage. */
void script_vm_collect(struct script_vm *vm);

/* Whether the hook has ended it, or would at once. */
static inline bool script_is_ended(const struct script_run *run)
{
    return run && (run->killed || run->stopped || run->too_long);
}

/* What a script that has been ended fails with; NULL: it has not been. */
const char *script_end_text(const struct script_run *run);

/* It has ended: others need not be served any more. */
void script_end_busy(struct script_run *run);

#endif
