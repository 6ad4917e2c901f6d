/* Checks what a user may do. */
#include "base/alloc.h"
#include "base/glob.h"
#include "command/commands.h"
#include "exec/acl_parts.h"

#define KEYS_AT_HAND 64

/* The keys of a request, found when the first selector needs them. */
struct request_keys {
    int n; /* -1: not looked up yet */
    struct key_use *v, at_hand[KEYS_AT_HAND];
};

/* -- commands ------------------------------------------------------------------------------------- */

static bool first_arg_fits(const struct acl_selector *s, const struct command *cmd, int argc,
                           const bytes *argv)
{
    for (u32 i = 0; argc > 1 && i < s->first_arg_count; i++) {
        const struct acl_first_arg *f = &s->first_args[i];
        if (f->cmd == cmd && acl_same_word(buf_bytes(&f->arg), argv[1])) return true;
    }
    return false;
}

static bool may_run(const struct acl_selector *s, const struct command *cmd, int argc, const bytes *argv)
{
    return s->all_commands || cmd->flags & CMD_NO_AUTH || acl_bit(s->commands, cmd->id) ||
           first_arg_fits(s, cmd, argc, argv);
}

/* -- keys -------------------------------------------------------------------------------------------- */

/* If the keys can't be found, or there are too few arguments, the command itself refuses them. */
static void find_keys(struct request_keys *k, const struct command *cmd, int argc, const bytes *argv)
{
    if (k->n >= 0) return;
    k->v = k->at_hand;
    k->n = 0;
    if (!command_takes(cmd, argc)) return;
    k->n = MAX(command_keys(cmd, argc, argv, k->v, KEYS_AT_HAND), 0);
    if (k->n <= KEYS_AT_HAND) return;
    k->v = mem_alloc((size_t)k->n * sizeof *k->v);
    (void)command_keys(cmd, argc, argv, k->v, k->n);
}

/* A command that does not look at the value (EXISTS, STRLEN) is allowed by a pattern of either kind. */
static u32 use_of(u32 flags)
{
    u32 use = (flags & KEY_ACCESS) ? ACL_READ : 0;
    return (flags & (KEY_INSERT | KEY_DELETE | KEY_UPDATE)) ? use | ACL_WRITE : use;
}

static bool may_use_key(const struct acl_selector *s, bytes key, u32 use)
{
    for (u32 i = 0; i < s->keys.n; i++) {
        const struct acl_pattern *p = &s->keys.v[i];
        if ((p->use & use) == use && glob_match(buf_bytes(&p->text), key, false)) return true;
    }
    return false;
}

static bool keys_fit(const struct acl_selector *s, struct request_keys *k, const struct command *cmd,
                     int argc, const bytes *argv, int *at)
{
    if (s->all_keys || cmd->specs[0].begin == SEEK_NONE) return true;
    find_keys(k, cmd, argc, argv);
    for (int i = 0; i < k->n; i++) {
        if (may_use_key(s, argv[k->v[i].at], use_of(k->v[i].flags))) continue;
        *at = k->v[i].at;
        return false;
    }
    return true;
}

bool acl_knows_key(const struct acl_user *u, bytes key)
{
    bool knows = !u->restricted;
    for (u32 i = 0; i < u->selector_count && !knows; i++)
        knows = u->selectors[i].all_keys || may_use_key(&u->selectors[i], key, 0);
    return knows;
}

/* -- channels ------------------------------------------------------------------------------------------ */

/* Whether the arguments from the first to *end are channels; unsubscribing needs no permission. */
static bool names_channels(const struct command *cmd, int argc, int *end, bool *patterns)
{
    bool one = cmd->run == cmd_publish || cmd->run == cmd_spublish;
    *end = one ? MIN(2, argc) : argc;
    *patterns = cmd->run == cmd_psubscribe;
    return one || *patterns || cmd->run == cmd_subscribe || cmd->run == cmd_ssubscribe;
}

/* A pattern is allowed only if it is literally one of the user's, because it can't be decided what it
 * matches. */
static bool may_hear(const struct acl_selector *s, bytes channel, bool is_pattern)
{
    for (u32 i = 0; i < s->channels.n; i++) {
        bytes allowed = buf_bytes(&s->channels.v[i].text);
        if (is_pattern ? bytes_eq(allowed, channel) : glob_match(allowed, channel, false)) return true;
    }
    return s->all_channels;
}

static bool channels_fit(const struct acl_selector *s, const struct command *cmd, int argc, const bytes *argv,
                         int *at)
{
    int end;
    bool patterns;
    if (s->all_channels || !names_channels(cmd, argc, &end, &patterns)) return true;
    for (int i = 1; i < end; i++) {
        if (may_hear(s, argv[i], patterns)) continue;
        *at = i;
        return false;
    }
    return true;
}

bool acl_hears(const struct acl_user *u, bytes channel, bool is_pattern)
{
    bool may = false;
    for (u32 i = 0; i < u->selector_count && !may; i++) may = may_hear(&u->selectors[i], channel, is_pattern);
    return may;
}

/* -- all together ---------------------------------------------------------------------------------------- */

static enum acl_denial check_selector(const struct acl_selector *s, struct request_keys *k,
                                      const struct command *cmd, int argc, const bytes *argv, int *at)
{
    *at = 0;
    if (!may_run(s, cmd, argc, argv)) return ACL_NO_COMMAND;
    if (!keys_fit(s, k, cmd, argc, argv, at)) return ACL_NO_KEY;
    if (!channels_fit(s, cmd, argc, argv, at)) return ACL_NO_CHANNEL;
    return ACL_ALLOWED;
}

/* If no selector allows it, the reason of the selector that got furthest is reported, and of its arguments
 * the last. */
enum acl_denial acl_check(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv,
                          int *at)
{
    enum acl_denial worst = ACL_NO_COMMAND, denial = ACL_NO_COMMAND;
    *at = 0;
    if (!u || !u->restricted) return ACL_ALLOWED;
    struct request_keys keys;
    keys.n = -1;
    for (u32 i = 0; i < u->selector_count && denial; i++) {
        int where;
        denial = check_selector(&u->selectors[i], &keys, cmd, argc, argv, &where);
        if (denial < worst || (denial == worst && where <= *at)) continue;
        worst = denial;
        *at = where;
    }
    if (keys.n > KEYS_AT_HAND) mem_free(keys.v);
    return denial ? worst : ACL_ALLOWED;
}

static bool reads_all(const struct acl_selector *s)
{
    bool all = s->all_keys;
    for (u32 i = 0; i < s->keys.n && !all; i++)
        all = s->keys.v[i].use & ACL_READ && bytes_eq(buf_bytes(&s->keys.v[i].text), BYTES_LIT("*"));
    return all;
}

bool acl_reads_all(const struct acl_user *u, const struct command *cmd, int argc, const bytes *argv)
{
    bool all = !u || !u->restricted;
    struct request_keys keys;
    keys.n = -1;
    for (u32 i = 0; !all && i < u->selector_count; i++) {
        const struct acl_selector *s = &u->selectors[i];
        int at;
        all = reads_all(s) && check_selector(s, &keys, cmd, argc, argv, &at) == ACL_ALLOWED;
    }
    if (keys.n > KEYS_AT_HAND) mem_free(keys.v);
    return all;
}
