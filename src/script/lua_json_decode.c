/* cjson's decoder: one pass over the text, copying only strings with escapes.
 *
 * Lua ends its strings with a zero byte, so looking ahead can't leave the text; a zero byte within it ends
 * the text as well. Errors say what was expected, what was found and where, with the original's texts. */
#include "script/lua_libs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum token { OBJ_BEGIN, OBJ_END, ARR_BEGIN, ARR_END, STRING, NUMBER, BOOLEAN, NUL, COLON, COMMA, END, ERROR };

static const char *const token_names[] = {
    "T_OBJ_BEGIN", "T_OBJ_END", "T_ARR_BEGIN", "T_ARR_END", "T_STRING", "T_NUMBER", "T_BOOLEAN", "T_NULL",
    "T_COLON", "T_COMMA", "T_END",
};

struct decoder {
    lua_State *L;
    const struct json_options *opt;
    const char *text, *at;
    int depth;
    u32 work;
    /* the token read last */
    enum token token;
    const char *where;   /* where it begins, or the error is */
    const char *error;   /* ERROR: what is wrong */
    double number;
    bool truth;
    const char *end;     /* STRING: its closing quote; `where` is the opening one */
    bool escapes;        /* it has escapes */
};

static void expected(struct decoder *d, const char *what)
{
    const char *found = d->token == ERROR ? d->error : token_names[d->token];
    luaL_error(d->L, "Expected %s but found %s at character %d", what, found, (int)(d->where - d->text) + 1);
}

static void wrong(struct decoder *d, const char *error, const char *where)
{
    d->token = ERROR;
    d->error = error;
    d->where = where;
}

/* -- strings ----------------------------------------------------------------------------------- */

/* Four hexadecimal digits; -1: invalid. */
static int hex4(const char *p)
{
    int n = 0;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((u8)p[i])) return -1;
        n = n << 4 | (isdigit((u8)p[i]) ? p[i] - '0' : tolower((u8)p[i]) - 'a' + 10);
    }
    return n;
}

/* The character of \uXXXX at p, or of a surrogate pair; its length in *n. -1: invalid. */
static int unicode(const char *p, size_t *n)
{
    int high = hex4(p + 2);
    *n = 6;
    if (high < 0xd800 || high > 0xdfff) return high;
    if (high >= 0xdc00 || p[6] != '\\' || p[7] != 'u') return -1;
    int low = hex4(p + 8);
    *n = 12;
    if (low < 0xdc00 || low > 0xdfff) return -1;
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* The character that \c means; 0: invalid. */
static char unescaped(char c)
{
    static const char *const from = "\"\\/bfnrt", *const to = "\"\\/\b\f\n\r\t";
    const char *found = c == '\0' ? NULL : strchr(from, c);
    return found == NULL ? '\0' : to[found - from];
}

/* Finds the end of the string, and checks its escapes. */
static void scan_string(struct decoder *d)
{
    const char *p = d->at + 1;
    d->token = STRING;
    d->escapes = false;
    while (*p != '"') {
        if (*p == '\0') {
            wrong(d, "unexpected end of string", p);
            return;
        }
        if (*p != '\\') {
            p++;
            continue;
        }
        size_t n = 2;
        if (p[1] == 'u' && unicode(p, &n) < 0) {
            wrong(d, "invalid unicode escape code", p);
            return;
        }
        if (p[1] != 'u' && unescaped(p[1]) == '\0') {
            wrong(d, "invalid escape code", p);
            return;
        }
        d->escapes = true;
        p += n;
    }
    d->end = p;
    d->at = p + 1;
}

static char *put_utf8(char *out, int c)
{
    if (c < 0x80) {
        *out++ = (char)c;
        return out;
    }
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const u8 lead[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(lead[more] | c >> (6 * more));
    while (more-- > 0) *out++ = (char)(0x80 | (c >> (6 * more) & 0x3f));
    return out;
}

/* Pushes the scanned string. No escape is shorter than its character. */
static void push_string(struct decoder *d)
{
    const char *p = d->where + 1;
    size_t n = (size_t)(d->end - p);
    if (!d->escapes) {
        lua_pushlstring(d->L, p, n);
        return;
    }
    luaL_checkstack(d->L, 2, "no room for a string");
    char *start = lua_newuserdata(d->L, n), *out = start;
    while (p < d->end) {
        if (*p != '\\') {
            *out++ = *p++;
        } else if (p[1] == 'u') {
            int c = unicode(p, &n);
            out = put_utf8(out, c);
            p += n;
        } else {
            *out++ = unescaped(p[1]);
            p += 2;
        }
    }
    lua_pushlstring(d->L, start, (size_t)(out - start));
    lua_remove(d->L, -2);
}

/* -- tokens ------------------------------------------------------------------------------------ */

/* A number that strtod accepts and JSON does not: signed with +, hexadecimal, with leading zeros, nan,
 * inf. */
static bool beyond_json(const char *p)
{
    if (*p == '+') return true;
    if (*p == '-') p++;
    if (*p == '0') return (p[1] | 0x20) == 'x' || isdigit((u8)p[1]);
    return strncasecmp(p, "inf", 3) == 0 || strncasecmp(p, "nan", 3) == 0;
}

static void scan_number(struct decoder *d)
{
    char *end;
    d->number = strtod(d->at, &end);
    if (end == d->at) {
        wrong(d, "invalid number", d->at);
        return;
    }
    d->token = NUMBER;
    d->at = end;
}

static bool scan_word(struct decoder *d, const char *word, enum token token)
{
    size_t n = strlen(word);
    if (strncmp(d->at, word, n) != 0) return false;
    d->token = token;
    d->truth = *word == 't';
    d->at += n;
    return true;
}

static void json_next(struct decoder *d)
{
    while (*d->at == ' ' || *d->at == '\t' || *d->at == '\n' || *d->at == '\r') d->at++;
    d->where = d->at;
    static const char *const marks = "{}[]:,";
    static const enum token of_marks[] = {OBJ_BEGIN, OBJ_END, ARR_BEGIN, ARR_END, COLON, COMMA};
    char c = *d->at;
    const char *mark = c == '\0' ? NULL : strchr(marks, c);
    if (mark != NULL) {
        d->token = of_marks[mark - marks];
        d->at++;
    } else if (c == '\0') {
        d->token = END;
    } else if (c == '"') {
        scan_string(d);
    } else if (c == '-' || isdigit((u8)c)) {
        if (!d->opt->decode_invalid && beyond_json(d->at)) wrong(d, "invalid number", d->at);
        else scan_number(d);
    } else if (!scan_word(d, "true", BOOLEAN) && !scan_word(d, "false", BOOLEAN) &&
               !scan_word(d, "null", NUL)) {
        if (d->opt->decode_invalid && beyond_json(d->at)) scan_number(d);
        else wrong(d, "invalid token", d->at);
    }
}

/* -- values ------------------------------------------------------------------------------------ */

static void value(struct decoder *d);

static void descend(struct decoder *d, int slots)
{
    d->depth++;
    if (d->depth > d->opt->decode_depth || !lua_checkstack(d->L, slots))
        luaL_error(d->L, "Found too many nested data structures (%d) at character %d", d->depth,
                   (int)(d->at - d->text));
}

static void array(struct decoder *d)
{
    descend(d, 2);
    lua_newtable(d->L);
    json_next(d);
    for (int i = 1; d->token != ARR_END; i++) {
        value(d);
        lua_rawseti(d->L, -2, i);
        json_next(d);
        if (d->token == ARR_END) break;
        if (d->token != COMMA) expected(d, "comma or array end");
        json_next(d);
        if (d->token == ARR_END) expected(d, "value");
    }
    d->depth--;
}

static void object(struct decoder *d)
{
    descend(d, 3);
    lua_newtable(d->L);
    json_next(d);
    while (d->token != OBJ_END) {
        if (d->token != STRING) expected(d, "object key string");
        push_string(d);
        json_next(d);
        if (d->token != COLON) expected(d, "colon");
        json_next(d);
        value(d);
        lua_rawset(d->L, -3);
        json_next(d);
        if (d->token == OBJ_END) break;
        if (d->token != COMMA) expected(d, "comma or object end");
        json_next(d);
        if (d->token == OBJ_END) expected(d, "object key string");
    }
    d->depth--;
}

/* Pushes the value that begins with the token read last. */
static void value(struct decoder *d)
{
    lua_work(d->L, &d->work);
    switch (d->token) {
    case STRING: push_string(d); break;
    case NUMBER: lua_pushnumber(d->L, d->number); break;
    case BOOLEAN: lua_pushboolean(d->L, d->truth); break;
    case NUL: lua_pushlightuserdata(d->L, NULL); break;
    case OBJ_BEGIN: object(d); break;
    case ARR_BEGIN: array(d); break;
    default: expected(d, "value");
    }
}

void json_decode(lua_State *L, const struct json_options *opt)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    if (n >= 2 && (text[0] == '\0' || text[1] == '\0'))
        luaL_error(L, "JSON parser does not support UTF-16 or UTF-32");
    luaL_checkstack(L, 1, "no room for a value");
    struct decoder d = {.L = L, .opt = opt, .text = text, .at = text};
    json_next(&d);
    value(&d);
    json_next(&d);
    if (d.token != END) expected(&d, "the end");
}
