/* The arguments of a command as COMMAND DOCS shows them, parsed from a line of syntax.def.
 *
 * The notation is that of manuals, with the names and types a manual leaves out:
 *
 *   key                an argument; its type follows from its name, or is a letter after it:
 *   name:i             s(tring), i(nteger), d(ouble), p(attern), u(nix time), or for a key the
 *   newkey:1           number of its key spec (pattern:p1 is a pattern that has one, too)
 *   addr~ip:port       one that manuals show by another name
 *   NX  sorting=ALPHA  a token; its name is the token itself, or the one given, and it may be
 *                      empty (empty-string=)
 *   EX seconds         an argument after a token
 *   [GET]              optional
 *   where<LEFT | RIGHT>  one of several, by a common name
 *   <field value>      a group; without a name before it, it is named after its
 *                      parts: field_value
 *   options[count [WITHSCORES]]   an optional group
 *   key...             one or more times; [GET pattern]... is repeated with its token
 *   [count]@6.2.0      since which version of Redis; !2.8.12 deprecated since
 *
 * After an argument come first `...`, then `@`, then `!`. */
#ifndef MAYFLY_COMMAND_SYNTAX_H
#define MAYFLY_COMMAND_SYNTAX_H

#include "base/buf.h"

enum syntax_type {
    SYNTAX_STRING, SYNTAX_INTEGER, SYNTAX_DOUBLE, SYNTAX_KEY, SYNTAX_PATTERN, SYNTAX_UNIX_TIME,
    SYNTAX_TOKEN, SYNTAX_ONE_OF, SYNTAX_BLOCK,
};

enum { SYNTAX_OPTIONAL = 1 << 0, SYNTAX_MULTIPLE = 1 << 1, SYNTAX_MULTIPLE_TOKEN = 1 << 2 };

/* Slices of the parsed text; what the text does not state is empty. */
struct syntax_arg {
    bytes name; /* as written: syntax_name() knows the implied ones */
    bytes shown; /* the displayed name, if it differs */
    bytes token, since, deprecated_since; /* token.p NULL: it has none; one may be empty */
    enum syntax_type type;
    u32 flags;
    int key_spec; /* -1 unless the argument is a key, or a pattern that leads to keys */
    size_t part_count;
    struct syntax_arg *parts; /* of SYNTAX_ONE_OF and SYNTAX_BLOCK: a list */
    struct syntax_arg *next;
};

#define SYNTAX_MAX_ARGS 64

/* The arguments point to each other: a struct syntax must not be moved. */
struct syntax {
    size_t count;
    struct syntax_arg *first; /* NULL if there are none */
    size_t used;
    struct syntax_arg pool[SYNTAX_MAX_ARGS];
};

/* False if the text is not in the notation or has too many arguments. */
bool syntax_parse(struct syntax *s, const char *text);

/* Appends the argument's name, or its displayed name. */
void syntax_name(const struct syntax_arg *arg, struct buf *to);
void syntax_shown(const struct syntax_arg *arg, struct buf *to);

#endif
