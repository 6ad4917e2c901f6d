#include "server/redact.h"

enum secret { SECRET_NONE, SECRET_ALL, SECRET_HELLO, SECRET_CONFIG };

static enum secret secrets_of(const struct command *cmd)
{
    if (!strcmp(cmd->name, "auth")) return SECRET_ALL;
    if (!strcmp(cmd->name, "hello")) return SECRET_HELLO;
    if (!strcmp(cmd->name, "config|set")) return SECRET_CONFIG;
    return SECRET_NONE;
}

static bool is_secret_directive(bytes name)
{
    static const char *const names[] = {"requirepass", "masterauth", "masteruser", "tls-key-file-pass",
                                        "tls-client-key-file-pass"};
    for (u32 i = 0; i < ARRAY_LEN(names); i++) {
        if (bytes_is(name, names[i])) return true;
    }
    return false;
}

static bool is_secret(enum secret kind, int i, const bytes *argv)
{
    switch (kind) {
    case SECRET_NONE: return false;
    case SECRET_ALL: return i >= 1;
    case SECRET_HELLO: return i >= 3 && (bytes_is(argv[i - 1], "auth") || bytes_is(argv[i - 2], "auth"));
    case SECRET_CONFIG: return i >= 3 && i % 2 == 1 && is_secret_directive(argv[i - 1]);
    }
    return false;
}

const bytes *redact(const struct command *cmd, int argc, const bytes *argv, struct buf *space)
{
    enum secret kind = secrets_of(cmd);
    if (LIKELY(kind == SECRET_NONE)) return argv;
    bytes *shown = (bytes *)(void *)buf_reserve(space, (size_t)argc * sizeof *shown);
    for (int i = 0; i < argc; i++) shown[i] = is_secret(kind, i, argv) ? BYTES_LIT("(redacted)") : argv[i];
    return shown;
}
