/* The table of directives, config.def, with the words and the checks it names. */
#include "config/config.h"

#include <locale.h>

#include "config/config_codec.h"

/* -- the words of the C enums -------------------------------------------------------- */

static const struct config_word words_policy[] = {
    {"volatile-lru", EVICT_VOLATILE_LRU}, {"volatile-lfu", EVICT_VOLATILE_LFU},
    {"volatile-random", EVICT_VOLATILE_RANDOM}, {"volatile-ttl", EVICT_VOLATILE_TTL},
    {"allkeys-lru", EVICT_ALLKEYS_LRU}, {"allkeys-lfu", EVICT_ALLKEYS_LFU},
    {"allkeys-random", EVICT_ALLKEYS_RANDOM}, {"noeviction", EVICT_NONE}, {NULL, 0},
};

static const struct config_word words_loglevel[] = {
    {"debug", LOG_DEBUG}, {"verbose", LOG_VERBOSE}, {"notice", LOG_NOTICE},
    {"warning", LOG_WARNING}, {NULL, 0},
};

static const struct config_word words_expire_source[] = {
    {"index", EXPIRE_INDEX}, {"sample", EXPIRE_SAMPLE}, {NULL, 0},
};

static const struct config_word words_engine[] = {
    {"memory", ENGINE_MEMORY}, {"rocksdb", ENGINE_ROCKSDB}, {NULL, 0},
};

static const struct config_word words_appendfsync[] = {
    {"everysec", DISK_SYNC_EVERYSEC}, {"always", DISK_SYNC_ALWAYS}, {"no", DISK_SYNC_NO},
    {NULL, 0},
};

static const struct config_word words_compression[] = {
    {"none", ROCKS_PLAIN}, {"lz4", ROCKS_LZ4}, {"zstd", ROCKS_ZSTD}, {"snappy", ROCKS_SNAPPY},
    {NULL, 0},
};

/* -- checks of texts ------------------------------------------------------------------- */

static bool is_path(bytes v) { return v.n && memchr(v.p, '/', v.n); }

static const char *check_dbfilename(bytes v)
{
    return is_path(v) ? "dbfilename can't be a path, just a filename" : NULL;
}

static const char *check_appendfilename(bytes v)
{
    if (v.n == 0) return "appendfilename can't be empty";
    return is_path(v) ? "appendfilename can't be a path, just a filename" : NULL;
}

static const char *check_appenddirname(bytes v)
{
    if (v.n == 0) return "appenddirname can't be empty";
    return is_path(v) ? "appenddirname can't be a path, just a dirname" : NULL;
}

static const char *check_hostname(bytes v)
{
    if (v.n > 255) return "Hostnames must be less than 256 characters";
    for (size_t i = 0; i < v.n; i++) {
        char ch = v.p[i], low = ch | 0x20;
        bool is_alnum = (low >= 'a' && low <= 'z') || (ch >= '0' && ch <= '9');
        if (!is_alnum && ch != '-' && ch != '.')
            return "Hostnames may only contain alphanumeric characters, hyphens or dots";
    }
    return NULL;
}

static const char *check_locale(bytes v)
{
    char name[128];
    if (v.n >= sizeof name) return "Invalid locale name";
    memcpy(name, v.p, v.n);
    name[v.n] = '\0';
    locale_t found = newlocale(LC_COLLATE_MASK, name, (locale_t)0);
    if (!found) return "Invalid locale name";
    freelocale(found);
    return NULL;
}

static bool is_title_variable(bytes name)
{
    static const char *const known[] = {"title", "listen-addr", "server-mode", "port", "tls-port",
                                        "unixsocket", "config-file"};
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (bytes_eq(name, bytes_str(known[i]))) return true;
    return false;
}

/* Known {variables} only, {{ for a brace, and something to show even for an empty title. */
static const char *check_title(bytes v)
{
    static const char bad[] = "template format is invalid or contains unknown variables";
    bool shows = false;
    for (size_t i = 0; i < v.n; i++) {
        if (v.p[i] != '{' || (i + 1 < v.n && v.p[i + 1] == '{')) {
            shows |= v.p[i] != ' ';
            i += v.p[i] == '{';
            continue;
        }
        const char *end = memchr(v.p + i, '}', v.n - i);
        if (!end) return bad;
        bytes name = bytes_of(v.p + i + 1, (size_t)(end - v.p) - i - 1);
        if (!is_title_variable(name)) return bad;
        shows |= !bytes_eq(name, BYTES_LIT("title"));
        i = (size_t)(end - v.p);
    }
    return shows ? NULL : bad;
}

/* -- the table -------------------------------------------------------------------------- */

enum {
    IMMUTABLE = CONFIG_IMMUTABLE, PROTECTED = CONFIG_PROTECTED, HIDDEN = CONFIG_HIDDEN,
    SENSITIVE = CONFIG_SENSITIVE, FIXED = CONFIG_FIXED, MULTI = CONFIG_MULTI,
    LISTEN = CONFIG_LISTEN, FILES = CONFIG_FILES, TLS = CONFIG_TLS, UNSIGNED = CONFIG_UNSIGNED,
    LOADED = CONFIG_LOADED, STARTUP = CONFIG_IMMUTABLE | CONFIG_AS_IT_IS, /* Mayfly's own */
};

#define HEAD(kind_, field_, name_, alias_, value_, flags_)                                    \
    .name = name_, .alias = alias_, .kind = CONFIG_##kind_, .flags = flags_,                  \
    .at = offsetof(struct config, field_), .value = value_
#define NUMBER(kind_, f, n, a, v, min_, max_, flags) \
    {HEAD(kind_, f, n, a, v, flags), .min = min_, .max = max_},
#define BOOL(f, n, a, v, flags) {HEAD(BOOL, f, n, a, v, flags)},
#define INT(f, n, a, v, min, max, flags) NUMBER(INT, f, n, a, v, min, max, flags)
#define MEMORY(f, n, a, v, min, max, flags) NUMBER(MEMORY, f, n, a, v, min, max, flags)
#define PERCENT(f, n, a, v, min, max, flags) NUMBER(PERCENT, f, n, a, v, min, max, flags)
#define OCTAL(f, n, a, v, min, max, flags) NUMBER(OCTAL, f, n, a, v, min, max, flags)
#define TEXT(f, n, a, v, check_, flags) {HEAD(TEXT, f, n, a, v, flags), .check = check_},
#define CHOICE(f, n, a, v, choices_, flags) {HEAD(CHOICE, f, n, a, v, flags), .choices = choices_},
#define ENUM(f, n, a, v, type, words_, flags) {HEAD(ENUM, f, n, a, v, flags), .words = words_},
#define SPECIAL(f, n, a, v, codec_, flags) {HEAD(SPECIAL, f, n, a, v, flags), .codec = &codec_},

#define any NULL
static const struct directive table[] = {
#include "config/config.def"
};
#undef any

u32 config_count(void) { return ARRAY_LEN(table); }
const struct directive *config_at(u32 i) { return &table[i]; }

const struct directive *config_find(bytes name, bool *by_alias)
{
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        bool alias = *table[i].alias && bytes_is(name, table[i].alias);
        if (!alias && !bytes_is(name, table[i].name)) continue;
        if (by_alias) *by_alias = alias;
        return &table[i];
    }
    return NULL;
}
