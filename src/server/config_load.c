/* Reads configuration files, standard input and the command line, in that order:
 * a later line overrides an earlier one. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "resp/request.h"
#include "config/config_codec.h"
#include "config/config_guess.h"
#include "config/rename.h"
#include "server/client/users.h"

#define INCLUDE_DEPTH 16

struct loader {
    struct config *config;
    struct buf *why;
    u32 depth;
    bool command_line; /* the lines being read are the arguments */
};

static bool load_path(struct loader *l, const char *path);

/* -- lines ---------------------------------------------------------------------------- */

/* Accepted silently, as in Redis: they had a meaning once. */
static bool is_obsolete(bytes name)
{
    return bytes_is(name, "list-max-ziplist-entries") || bytes_is(name, "list-max-ziplist-value") ||
           bytes_is(name, "lua-replicate-commands");
}

static bool load_include(struct loader *l, bytes path)
{
    struct buf text = {0};
    config_text(&text, path);
    bool ok = load_path(l, text.p);
    buf_release(&text);
    return ok;
}

static bool load_words(struct loader *l, u32 n, const bytes *w, struct buf *why)
{
    const struct directive *d = config_find(w[0], NULL);
    if (bytes_is(w[0], "appendonly")) l->config->appendonly_given = true;
    if (d) return config_set(l->config, d, n - 1, w + 1, why);
    if (n == 2 && is_obsolete(w[0])) return true;
    if (n == 3 && bytes_is(w[0], "rename-command")) return rename_add(l->config, w[1], w[2], why);
    if (n >= 2 && bytes_is(w[0], "user")) return users_declare(l->config, n - 1, w + 1, why);
    if (n >= 2 && bytes_is(w[0], "loadmodule"))
        return config_fail(why, "not supported by this build");
    if (n >= 2 && bytes_is(w[0], "sentinel"))
        return config_fail(why, "sentinel directive while not in sentinel mode");
    const char *guess = config_guess(w[0]);
    config_fail(why, "Bad directive or wrong number of arguments");
    if (guess) buf_printf(why, ". Did you mean '%s%s'?", l->command_line ? "--" : "", guess);
    return false;
}

static bytes config_trim(const char *p, const char *end)
{
    static const char blank[] = " \t\r\n";
    while (p < end && *p && strchr(blank, *p)) p++;
    while (end > p && end[-1] && strchr(blank, end[-1])) end--;
    return bytes_of(p, (size_t)(end - p));
}

static void fatal(struct buf *why, const char *what)
{
    buf_printf(why, "\n*** FATAL %s ERROR (Mayfly %s, Redis %s) ***\n", what, MAYFLY_VERSION, REDIS_VERSION);
}

static void report(struct loader *l, u32 line_number, bytes line, const struct buf *problem)
{
    fatal(l->why, l->command_line ? "COMMAND LINE" : "CONFIG FILE");
    if (!l->command_line) buf_printf(l->why, "Reading the configuration file, at line %u\n", line_number);
    buf_printf(l->why, ">>> '%s%.*s'\n%.*s", l->command_line && *line.p != '"' ? "--" : "", (int)line.n,
               line.p, (int)problem->n, problem->p);
    if (l->command_line) buf_append_str(l->why, "\nmayfly-server --help shows how it is started.");
}

static bool load_line(struct loader *l, u32 line_number, bytes line)
{
    struct request_parser p;
    struct buf problem = {0};
    bytes *words = NULL;
    bool ok = false, reported = false;
    request_parser_init(&p);
    if (!request_split_words(&p, line)) {
        config_fail(&problem, "Unbalanced quotes in configuration line");
        goto out;
    }
    ok = true;
    if (p.argc == 0) goto out;
    words = mem_alloc(p.argc * sizeof *words);
    for (u32 i = 0; i < p.argc; i++) words[i] = request_word(&p, i);
    if (p.argc == 2 && bytes_is(words[0], "include")) reported = !(ok = load_include(l, words[1]));
    else ok = load_words(l, p.argc, words, &problem);
out:
    if (!ok && !reported) report(l, line_number, line, &problem);
    mem_free(words);
    buf_release(&problem);
    request_parser_release(&p);
    return ok;
}

static bool load_text(struct loader *l, bytes text)
{
    const char *p = text.p, *end = text.p + text.n;
    for (u32 number = 1; p < end; number++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        bytes line = config_trim(p, nl ? nl : end);
        if (line.n && *line.p != '#' && !load_line(l, number, line)) return false;
        p = nl ? nl + 1 : end;
    }
    return true;
}

/* -- files -------------------------------------------------------------------------------- */

static bool config_read_file(const char *path, struct buf *text, struct buf *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && config_slurp(fd, text);
    if (!ok)
        config_fail(why, "Fatal error, can't open config file '%s': %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return ok;
}

static bool load_file(struct loader *l, const char *path)
{
    struct buf text = {0};
    if (l->depth == INCLUDE_DEPTH)
        return config_fail(l->why, "Fatal error, config files include each other too deeply at "
                                   "'%s'", path);
    l->depth++;
    bool command_line = l->command_line;
    l->command_line = false; /* --include FILE */
    bool ok = config_read_file(path, &text, l->why) && load_text(l, buf_bytes(&text));
    l->command_line = command_line;
    l->depth--;
    buf_release(&text);
    return ok;
}

/* A pattern may match nothing: that is how drop-in directories work. */
static bool load_path(struct loader *l, const char *path)
{
    if (!strpbrk(path, "*?[")) return load_file(l, path);
    glob_t found = {0};
    bool ok = true;
    if (glob(path, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && ok; i++) ok = load_file(l, found.gl_pathv[i]);
    globfree(&found);
    return ok;
}

/* -- the command line ------------------------------------------------------------------------ */

/* Whether this argument is a directive without a value: "--port", not "--port 1". */
static bool is_bare(const char *arg)
{
    struct request_parser p;
    request_parser_init(&p);
    bool bare = request_split_words(&p, bytes_str(arg)) && p.argc == 1;
    request_parser_release(&p);
    return bare;
}

static bool is_option(const char *arg) { return arg[0] == '-' && arg[1] == '-'; }

/* Turns the arguments from argv[at] on into lines. A bare --directive takes the next argument as its value
 * whatever it looks like; except --save, whose value may be missing, because scripts omit it when it is
 * empty. */
static void options_to_lines(int at, int argc, char **argv, struct buf *out)
{
    bool wants_value = false;
    for (; at < argc; at++) {
        const char *arg = argv[at];
        if (!is_option(arg) || wants_value) {
            buf_append_quoted(out, bytes_str(arg));
            buf_append_char(out, ' ');
            wants_value = false;
            continue;
        }
        buf_printf(out, "%s%s ", out->n ? "\n" : "", arg + 2);
        wants_value = is_bare(arg);
        bool last = at == argc - 1 || is_option(argv[at + 1]);
        if (wants_value && last && !strcasecmp(arg, "--save")) {
            buf_append_str(out, "\"\"");
            wants_value = false;
        }
    }
}

static bool is_dash(const char *arg) { return arg[0] == '-' && arg[1] == '\0'; }

static void set_file(struct config *c, const char *path)
{
    struct buf absolute = {0};
    char here[4096];
    if (*path != '/' && getcwd(here, sizeof here)) buf_printf(&absolute, "%s/", here);
    buf_append_str(&absolute, path);
    config_text(&c->file, buf_bytes(&absolute));
    buf_release(&absolute);
}

static bool check_together(const struct config *c, struct buf *why)
{
    struct buf problem = {0};
    bool ok = config_agrees(c, &problem);
    if (!ok) {
        fatal(why, "CONFIG FILE");
        buf_append_bytes(why, buf_bytes(&problem));
    }
    buf_release(&problem);
    return ok;
}

static bool check_logfile(const struct config *c, struct buf *why)
{
    if (c->logfile.n == 0) return true;
    int fd = open(c->logfile.p, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) {
        close(fd);
        return true;
    }
    int code = errno;
    fatal(why, "CONFIG FILE");
    return config_fail(why, "Can't open the log file: %s", strerror(code));
}

bool config_read_args(struct config *c, int argc, char **argv, struct buf *why)
{
    struct loader l = {.config = c, .why = why};
    struct buf text = {0}, options = {0};
    bool ok = false, from_stdin = false;
    int at = 1;
    if (at < argc && argv[at][0] != '-') set_file(c, argv[at++]);
    if (at < argc && at == 1 && is_dash(argv[at])) from_stdin = true, at++;
    if (at < argc && is_dash(argv[argc - 1])) from_stdin = true, argc--;
    options_to_lines(at, argc, argv, &options);

    if (c->file.n && !config_read_file(c->file.p, &text, why)) goto out;
    if (from_stdin && !config_slurp(STDIN_FILENO, &text)) {
        config_fail(why, "Fatal error, can't read standard input: %s", strerror(errno));
        goto out;
    }
    c->reading = true;
    ok = load_text(&l, buf_bytes(&text));
    l.command_line = true;
    ok = ok && load_text(&l, buf_bytes(&options));
    c->reading = false;
    config_settle(c);
    config_settle_engine(c);
    ok = ok && check_together(c, why) && check_logfile(c, why);
out:
    buf_release(&text);
    buf_release(&options);
    return ok;
}
