/* Scripts: Lua 5.1 in a sandbox, run as part of a command.
 *
 * A script_vm is one sandboxed interpreter: EVAL has one, functions have another. Its globals are read-only
 * and contain what Redis gives to scripts (redis.*, cjson, cmsgpack, bit, struct and a part of Lua's own
 * libraries); it uses no more memory than `limit`. script_run calls a compiled function as a script: with
 * keys and arguments, within the checks its flags ask for, with a hook that makes long ones killable, and
 * with its result as the reply.
 *
 * Every error that Lua raises is a table {err=, source=, line=}, as in Redis; only the text is replied. A Lua
 * error must never pass through C code of ours that holds memory. */
#ifndef MAYFLY_SCRIPT_SCRIPT_H
#define MAYFLY_SCRIPT_SCRIPT_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "exec/region.h"

/* The flags a script declares: `#!lua flags=…`, or those of a function. */
enum {
    SCRIPT_NO_WRITES = 1,
    SCRIPT_ALLOW_OOM = 2,
    SCRIPT_ALLOW_STALE = 4,
    SCRIPT_NO_CLUSTER = 8,
    SCRIPT_ALLOW_CROSS_SLOT = 16,
    SCRIPT_COMPAT = 32, /* EVAL without a shebang: it declares nothing, and is checked at each command */
};

/* The flag of this name ("no-writes"); 0: unknown. */
u32 script_flag(bytes name);
/* The name of the i-th flag that is set, in Redis's order; NULL: there are no more. */
const char *script_flag_name(u32 flags, u32 i);

struct script_vm {
    lua_State *L;
    struct node *node;
    size_t used;              /* memory of the interpreter, by our own count */
    size_t settled;           /* `used` after the last full collection */
    i64 compile_until_us;     /* host.cpu_us at which compiling is aborted; 0: never */
    size_t ceiling;           /* user code may not exceed this; 0: no user code is running */
    struct script_run *run;   /* what is running in it; NULL: nothing */
    u64 random;               /* state of math.random, 48 bits: from the command's seed in each run */
    bool gc_changed;          /* a script has called collectgarbage: its settings are reset afterwards */
    u32 runs;                 /* since the last step of garbage collection */
    struct buf reply, words;  /* redis.call: the reply, and the numbers among its arguments, as text */
    struct buf denial;        /* why it was not permitted */
};

/* The script that is running: one at a time per node, in either interpreter (node.script). */
struct script_run {
    struct script_vm *vm;
    struct ctx *c;            /* the command that runs it; redis.call uses its session */
    const char *name;         /* the script's SHA1, or the function's name; NULL: a library is being loaded */
    bool is_function;
    bool read_only;           /* it may not write */
    bool allow_oom;
    bool any_slot;            /* allow-cross-slot-keys */
    i32 slot;                 /* of the keys it declared or used; in cluster mode only: exec/route.h */
    bool wrote;               /* it has called a command that writes: it can no longer be killed */
    bool killed;              /* … or it has been killed */
    bool busy;                /* it runs longer than the threshold: other clients are being served */
    bool stopped;             /* the server is about to end: the script is stopped … */
    bool dropped;             /* … and its changes are not kept: the server has ended */
    bool too_long;            /* a library that exceeded its time limit */
    u8 proto;                 /* redis.setresp */
    i64 start_us;             /* by node.host's clock */
    i64 limit_us;             /* loading a library: when it is aborted; 0: never */
    i64 time_us;              /* what TIME last returned; 0: not called yet */
};

struct script_call {
    const char *name;         /* outlives the call */
    bool is_function;         /* KEYS and ARGV are arguments, not globals */
    bool ro_command;          /* EVAL_RO and the like */
    u32 flags;
    const bytes *keys, *args;
    int key_count, arg_count;
};

/* Makes an interpreter with everything in its globals, read-only. vm->L may be used while none of its scripts
 * runs. */
void script_vm_init(struct script_vm *vm, struct node *n);
void script_vm_release(struct script_vm *vm);

/* Compiles source (never bytecode): true and the function on the stack, or false and the text of the error in
 * *error. chunk is "@user_script", "@user_function". More than limit_ms of CPU time is an error; 0: no
 * limit. */
NODISCARD bool script_compile(struct script_vm *vm, bytes source, const char *chunk, u32 limit_ms,
                              struct buf *error);

/* Pops the function on top of vm->L's stack, runs it as a script and replies to c->out: its result, its
 * error, or why it may not run. */
void script_run(struct script_vm *vm, struct ctx *c, const struct script_call *call);

/* The flags of a command with valid arguments. A command that runs a script may write, unless the script or
 * function it names declares no-writes. */
u32 script_command_flags(const struct node *n, const struct command *cmd, const bytes *argv);

/* Call it first in a command that runs scripts: the owner shows it (MONITOR) before the commands it runs. */
void script_announce(const struct ctx *c);

/* Pops the function on top of the stack and calls it without arguments or results, to load a library:
 * redis.call is refused, and after limit_ms (0: never) it is aborted. False: *error has the text, without
 * "ERR". */
NODISCARD bool script_run_loading(struct script_vm *vm, struct ctx *c, u32 limit_ms, struct buf *error);

/* The vm of a state, or of a coroutine; and what runs in it (NULL: nothing, or a library is loading). */
struct script_vm *script_vm_of(lua_State *L);
struct script_run *script_run_of(lua_State *L);

/* -- read-only tables -------------------------------------------------------------------------- */

/* Makes the table on top of the stack read-only: it is replaced by a proxy that reads through, and whose
 * writes raise "Attempt to modify a readonly table". The same for tables within it. */
void script_freeze(lua_State *L);

/* Pushes a modifiable copy of the `redis` table: for loading libraries, whose redis.* has
 * register_function. */
void script_push_api(lua_State *L);

/* The globals as user code sees them (every function's environment unless it is given another one):
 * read-only. And the table behind them, which C code may change. */
void script_push_globals(lua_State *L);
void script_push_real_globals(lua_State *L);

/* -- errors ------------------------------------------------------------------------------------ */

/* Pushes {err="ERR text"}; a text that begins with '-' has its own code. */
void script_push_error(lua_State *L, const char *text);
/* Raises the error table on top as Redis's luaError does. */
int script_raise(lua_State *L);
/* The text of the error (a table or anything else) at index, without source and line. */
bytes script_error_text(lua_State *L, int index);

/* -- conversion (script_convert.c) ------------------------------------------------------------- */

/* Replies with the value on top of the stack in out's protocol; pops it. */
void script_reply(lua_State *L, struct reply *out);
/* Pushes a whole RESP reply as a Lua value. */
void script_push_reply(lua_State *L, bytes resp);

/* -- limits and killing (script_limits.c) ------------------------------------------------------ */

/* The hook for user code: set by script_run and script_run_loading. */
void script_hook(lua_State *L, lua_Debug *ar);
/* Whether the running script has taken so long that TIME advances in it: busy_after_ms, or its default where
 * that is 0. */
bool script_takes_long(const struct node *n);
/* SCRIPT KILL, FUNCTION KILL: replies. */
void script_kill(struct ctx *c, bool function);
/* The text of -BUSY for clients that are not served; NULL: nothing runs too long. */
const char *script_busy_error(const struct node *n);

/* -- EVAL's interpreter and its cache (script_cache.c), made when first needed ------------------ */

struct script_entry;

struct scripts {
    struct script_vm vm;
    u32 cached;               /* compiled scripts, by SHA1 */
    u64 memory;               /* their sources */
    struct script_entry *entries;         /* all of them */
    struct script_entry *oldest, *newest; /* scripts that only EVAL brought, by their last use … */
    u32 passing;                          /* … and their number */
};
struct scripts *scripts_of(struct node *n);
void scripts_release(struct node *n);

/* -- parts of the sandbox that are set up by script_vm_init ------------------------------------ */

void script_open_sandbox(lua_State *L); /* those of Lua's own functions that could bypass read-only tables */
void script_open_api(lua_State *L);     /* redis.* */

#endif
