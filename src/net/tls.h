/* TLS on a connected, non-blocking socket, with the interface of recv and send: the first of them does the
 * handshake. The event to poll for may differ from the intended operation (reading may have to write first),
 * so callers ask tls_events what to poll for, and try everything they want to do whatever event came. */
#ifndef MAYFLY_NET_TLS_H
#define MAYFLY_NET_TLS_H

#include <sys/types.h>

#include "base/buf.h"

struct tls_options { /* texts may be NULL or empty: not given */
    const char *cert_file, *key_file, *key_file_pass;
    const char *client_cert_file, *client_key_file, *client_key_file_pass; /* default: the same */
    const char *dh_params_file, *ca_cert_file, *ca_cert_dir;
    const char *protocols;               /* "TLSv1.2 TLSv1.3" and older; default: those two */
    const char *ciphers, *ciphersuites;
    bool needs_ca;                       /* the peer's certificate will be verified */
    bool prefer_server_ciphers, session_caching;
    i64 session_cache_size, session_cache_timeout_s;
};

enum tls_verify { TLS_VERIFY_NO, TLS_VERIFY_OPTIONAL, TLS_VERIFY_YES }; /* certificates of clients */

struct tls_context; /* shared by connections: certificates and rules */
struct tls;         /* one connection */

/* NULL: `why` says what is wrong with the options. Connections may outlive their context. */
struct tls_context *tls_context_new(const struct tls_options *o, struct buf *why);
void tls_context_free(struct tls_context *c); /* NULL is fine */

/* The socket stays the caller's. NULL: no memory, or no context because its files were missing. */
struct tls *tls_accept(struct tls_context *c, int fd, enum tls_verify verify);
struct tls *tls_connect(struct tls_context *c, int fd);
void tls_free(struct tls *t); /* sends close_notify if that does not block; NULL is fine */

/* As recv and send: -1 and errno; EAGAIN: poll and try again; EPROTO: TLS itself failed. */
ssize_t tls_recv(struct tls *t, void *to, size_t n);
ssize_t tls_send(struct tls *t, const void *p, size_t n);

/* UV_READABLE and UV_WRITABLE to poll for if the caller wants to do `events`; other bits are passed on. Ask
 * again after each tls_recv and tls_send. */
int tls_events(const struct tls *t, int events);

/* The handshake is not finished. */
bool tls_handshaking(const struct tls *t);

/* Why it failed, after EPROTO; for the log. */
const char *tls_trouble(const struct tls *t);

#endif
