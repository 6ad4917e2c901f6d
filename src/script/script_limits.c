/* Scripts that run too long.
 *
 * A hook is called every SCRIPT_STEP instructions, or more often (script_step). Once a script has run for
 * longer than busy_after_ms, the hook lets the owner serve other clients, which get -BUSY or may kill the
 * script. A killed script gets an error here, and again at each further line if it catches that. It can't be
 * killed once it has written: half of its changes would stay. The owner checks for signals from the beginning
 * on, and may stop it. */
#include <stdio.h>

#include "base/log.h"
#include "script/script_vm.h"

#define BUSY(kill_) "BUSY Redis is busy running a script. You can only call " kill_ " or SHUTDOWN NOSAVE."
#define BUSY_EVAL BUSY("SCRIPT KILL")
#define BUSY_FUNCTION BUSY("FUNCTION KILL")

static const char *kill_command(const struct script_run *run)
{
    return run->is_function ? "FUNCTION KILL" : "SCRIPT KILL";
}

#define SCRIPT_STEP_CUT 100

/* Raises the error in the running coroutine, from now on at each line; and then in the script itself. */
static void cut_off(lua_State *L, const char *text)
{
    lua_sethook(L, script_hook, LUA_MASKLINE | LUA_MASKCOUNT, SCRIPT_STEP_CUT);
    lua_sethook(script_vm_of(L)->L, script_hook, LUA_MASKLINE | LUA_MASKCOUNT, SCRIPT_STEP_CUT);
    script_push_error(L, text);
    script_raise(L);
}

static void note_kill(const struct script_run *run, const struct node *n)
{
    if (n->host.log)
        n->host.log(n->owner, LOG_WARNING, run->is_function ? "Lua script killed by user with FUNCTION KILL."
                                                           : "Lua script killed by user with SCRIPT KILL.");
}

static void begin_busy(struct script_run *run, const struct node *n, i64 elapsed_ms)
{
    char line[512];
    run->busy = true;
    snprintf(line, sizeof line,
             "Slow script detected: still in execution after %lld milliseconds. You can try killing the "
             "script using the %s command. Script name is: %.200s.",
             (long long)elapsed_ms, kill_command(run), run->name);
    if (n->host.log) n->host.log(n->owner, LOG_WARNING, line);
}

void script_watch(lua_State *L)
{
    int step = script_step(script_vm_of(L));
    if (lua_gethook(L) && lua_gethookcount(L) != step) lua_sethook(L, script_hook, lua_gethookmask(L), step);
}

void script_hook(lua_State *L, lua_Debug *ar UNUSED)
{
    struct script_vm *vm = script_vm_of(L);
    struct script_run *run = vm->run;
    struct node *n = vm->node;
    script_watch(L);
    if (!run) return; /* a coroutine that outlived its script */
    i64 elapsed_us = n->host.now_us(n->owner) - run->start_us;
    run->too_long |= run->limit_us && elapsed_us > run->limit_us;
    if (run->too_long) cut_off(L, "FUNCTION LOAD timeout");
    if (!run->name) return;
    if (!run->killed && !run->stopped && n->host.look) n->host.look(n->owner);
    if (!run->killed && !run->stopped) {
        if (!n->host.busy_after_ms || (!run->busy && elapsed_us < n->host.busy_after_ms * 1000)) return;
        if (!run->busy) begin_busy(run, n, elapsed_us / 1000);
        if (n->host.serve) n->host.serve(n->owner);
        if (run->killed) note_kill(run, n);
    }
    const char *why = script_end_text(run);
    if (why) cut_off(L, why);
}

const char *script_end_text(const struct script_run *run)
{
    if (run->stopped) return "the server is shutting down";
    return run->killed ? "Script killed by user with SCRIPT KILL..." : NULL; /* functions, too, as in Redis */
}

#define TIME_MOVES_AFTER_MS 5000 /* if there is no threshold */

bool script_takes_long(const struct node *n)
{
    i64 after_ms = n->host.busy_after_ms ? n->host.busy_after_ms : TIME_MOVES_AFTER_MS;
    if (!n->host.now_us) return false;
    return n->host.now_us(n->owner) - n->script->start_us >= after_ms * 1000;
}

/* When the server's end stopped a script, its changes must not be kept, because they are half done. In-memory
 * data is lost anyway. */
void script_end_busy(struct script_run *run)
{
    struct region *r = run->c->region;
    if (!run->dropped || !run->wrote) return;
    journal_abandon(&r->journal);
    r->doomed = r->eng->caps.durable;
}

const char *script_busy_error(const struct node *n)
{
    if (!n->script || !n->script->busy) return NULL;
    return n->script->is_function ? BUSY_FUNCTION : BUSY_EVAL;
}

void script_kill(struct ctx *c, bool function)
{
    struct script_run *run = ctx_node(c)->script;
    if (!run) {
        reply_error(c->out, "NOTBUSY No scripts in execution right now.");
    } else if (run->wrote) {
        reply_error(c->out, "UNKILLABLE Sorry the script already executed write commands against the "
                            "dataset. You can either wait the script termination or kill the server in "
                            "a hard way using the SHUTDOWN NOSAVE command.");
    } else if (run->is_function != function) {
        reply_error(c->out, run->is_function ? BUSY_FUNCTION : BUSY_EVAL);
    } else {
        run->killed = true;
        reply_ok(c->out);
    }
}
