/* Opens a TCP connection without blocking the loop: a worker resolves the host name, then its addresses are
 * tried in order until one answers.
 *
 *     d = dial_begin(loop, "db2.example", 16379, on_dialled, me);
 *     …
 *     static void on_dialled(void *arg, int fd, const char *why)
 *         fd >= 0: a connected, non-blocking socket, owned by the callee from here on
 *         fd < 0:  no address answered; `why` is the error of the last one
 *
 * `done` is called exactly once, from the loop, unless dial_cancel is called before. The dial is freed when
 * `done` is called. There is no time limit: a caller that has one cancels. */
#ifndef MAYFLY_NET_DIAL_H
#define MAYFLY_NET_DIAL_H

#include <uv.h>

#include "base/types.h"

struct dial;
typedef void (*dial_fn)(void *arg, int fd, const char *why);

struct dial *dial_begin(uv_loop_t *loop, const char *host, int port, dial_fn done, void *arg);
void dial_cancel(struct dial *d); /* `done` will not be called */

#endif
