/* SHUTDOWN, MODULE and LOLWUT. */
#include "command/commands.h"
#include "server/server.h"

/* -- SHUTDOWN ------------------------------------------------------------------------ */

#define SHUTDOWN_ABORT 16 /* beside the SHUTDOWN_* of config.h */

static bool parse_shutdown(struct ctx *c, u32 *how)
{
    *how = 0;
    for (int i = 1; i < c->argc; i++) {
        bytes word = c->argv[i];
        if (bytes_is(word, "nosave")) *how |= SHUTDOWN_NOSAVE;
        else if (bytes_is(word, "save")) *how |= SHUTDOWN_SAVE;
        else if (bytes_is(word, "now")) *how |= SHUTDOWN_NOW;
        else if (bytes_is(word, "force")) *how |= SHUTDOWN_FORCE;
        else if (bytes_is(word, "abort")) *how |= SHUTDOWN_ABORT;
        else return false;
    }
    bool torn = (*how & SHUTDOWN_NOSAVE) && (*how & SHUTDOWN_SAVE);
    return !torn && (!(*how & SHUTDOWN_ABORT) || *how == SHUTDOWN_ABORT);
}

/* There is nothing to wait for (no replicas), so a shutdown is over within the
 * turn of the loop that began it: ABORT never finds one. */
void cmd_shutdown(struct ctx *c)
{
    u32 how;
    if (!parse_shutdown(c, &how)) ctx_syntax_error(c);
    else if (how & SHUTDOWN_ABORT) reply_error(c->out, "ERR No shutdown in progress.");
    else if (!server_shutdown(c->server, how))
        reply_error(c->out, "ERR Errors trying to SHUTDOWN. Check logs.");
}

/* -- MODULE -------------------------------------------------------------------------- */

void cmd_module_list(struct ctx *c) { reply_array(c->out, 0); }

void cmd_module_help(struct ctx *c)
{
    static const char *const lines[] = {
        "LIST",
        "    The loaded modules: none, there is no way to load one.",
        NULL,
    };
    ctx_help(c, lines);
}

/* -- LOLWUT -------------------------------------------------------------------------- */

#define POND_ROWS 7
#define POND_COLUMNS 56

/* A swarm over a pond at dusk; each call another evening. */
static void draw_pond(struct ctx *c, struct buf *out)
{
    static const char *const fly[] = {"\\|/", "~o~", ">=-", "-=<", "'v'"};
    char sky[POND_ROWS][POND_COLUMNS + 1];
    for (u32 y = 0; y < POND_ROWS; y++) {
        memset(sky[y], ' ', POND_COLUMNS);
        sky[y][POND_COLUMNS] = '\0';
        for (u32 n = 0; n < 1 + y / 2; n++)
            memcpy(&sky[y][4 * rand_below(&c->rng, POND_COLUMNS / 4)],
                   fly[rand_below(&c->rng, ARRAY_LEN(fly))], 3);
        buf_printf(out, "%s\n", sky[y]);
    }
    for (u32 y = 0; y < 2; y++) {
        for (u32 x = 0; x < POND_COLUMNS; x++)
            buf_append_char(out, "~-~ ~~_"[rand_below(&c->rng, 7)]);
        buf_append_char(out, '\n');
    }
}

static const char portrait[] =
    "\n"
    "              __..--\"\"\"--..\n"
    "         _.-\"'   /   |    \\ '.             She dances for one day\n"
    "       .'    /  /    |    .-'              and knows to the millisecond\n"
    "      '-.._ /__/_____|.-'                  when it is over.\n"
    "   (\\        o(_)====)====)-.__\n"
    "    \\\\______/ / /  \\ \\      ''--.._____________\n"
    "             ' '    ' '          ''---..._______\n"
    "\n";

/* Earlier editions took numbers for their canvas: those must still be numbers. */
static bool parse_lolwut(struct ctx *c)
{
    i64 version, number;
    if (c->argc < 3 || !bytes_is(c->argv[1], "version")) return true;
    if (!ctx_int(c, c->argv[2], &version)) return false;
    int numbers = version == 5 ? 3 : version == 6 ? 2 : 0;
    for (int i = 3; i < c->argc && i < 3 + numbers; i++) {
        if (!ctx_int(c, c->argv[i], &number)) return false;
    }
    return true;
}

void cmd_lolwut(struct ctx *c)
{
    struct buf text = {0};
    if (!parse_lolwut(c)) return;
    draw_pond(c, &text);
    buf_append_str(&text, portrait);
    buf_append_str(&text, "Mayfly ver. " MAYFLY_VERSION " (Redis " REDIS_VERSION " protocol)\n");
    reply_verbatim(c->out, buf_bytes(&text), "txt");
    buf_release(&text);
}
