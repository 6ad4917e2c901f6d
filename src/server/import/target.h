/* Where an import goes: a cluster of Mayfly or Redis, or a lone server. Commands are sent to the node that
 * leads their slot, and again while that changes. Blocking sockets: nothing else runs in this process. */
#ifndef MAYFLY_SERVER_IMPORT_TARGET_H
#define MAYFLY_SERVER_IMPORT_TARGET_H

#include "base/buf.h"
#include "base/key_slot.h"

#define TARGET_LEADERS_MAX 1000

struct target_node;

struct target {
    char host[256]; /* the address that was given */
    int port;
    const char *user, *password; /* NULL: none */
    struct target_node *nodes, *first;
    struct target_node *of_slot[KEY_SLOTS];
    char error[512]; /* the last one */
};

/* A batch: commands, and what became of each. */
struct target_command {
    u16 slot;
    size_t at, n;      /* its bytes in batch.text … */
    size_t key_at, key_n; /* … and its key's */
    bool done;
    bool tried;        /* an answer is missing: it may have run */
};

struct target_batch {
    struct buf text;
    struct target_command *commands;
    u32 count, room;
    u64 existed;       /* keys that were there before */
    u32 left;          /* commands not done yet */
};

/* host:port, of any node. False: target.error. */
NODISCARD bool target_open(struct target *t, const char *address, const char *user, const char *password);
void target_close(struct target *t);

/* A slot of each node that leads any. Returns how many there are. */
u32 target_leaders(const struct target *t, u16 slots[TARGET_LEADERS_MAX]);

/* Appends a command to the batch; `key` is one of its arguments, or empty. */
void batch_add(struct target_batch *b, u16 slot, int argc, const bytes *argv, bytes key);
void batch_cancel(struct target_batch *b); /* the command that was added last is not sent */
void batch_clear(struct target_batch *b);
void batch_release(struct target_batch *b);

/* Sends all commands until each is done, through elections and restarts. False: one was refused for good, or
 * nothing got done for a minute: target.error says why. */
NODISCARD bool target_send(struct target *t, struct target_batch *b);

#endif
