/* TLS on a connected, non-blocking socket, with the face of recv and send: the handshake happens by itself
 * under the first of them. What to wait for is not always what one wants to do (reading may have to write
 * first), so whoever polls asks tls_events, and tries everything it wants to do whatever event came. */
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
    bool needs_ca;                       /* somebody's certificate will be looked at */
    bool prefer_server_ciphers, session_caching;
    i64 session_cache_size, session_cache_timeout_s;
};

enum tls_verify { TLS_VERIFY_NO, TLS_VERIFY_OPTIONAL, TLS_VERIFY_YES }; /* certificates of clients */

struct tls_context; /* what connections share: certificates and rules */
struct tls;         /* one connection's */

/* NULL: `why` says what is wrong with the options. Connections outlive their context. */
struct tls_context *tls_context_new(const struct tls_options *o, struct buf *why);
void tls_context_free(struct tls_context *c); /* NULL is fine */

/* The socket stays the caller's. NULL: no memory, or no context: its files were gone when it was needed. */
struct tls *tls_accept(struct tls_context *c, int fd, enum tls_verify verify);
struct tls *tls_connect(struct tls_context *c, int fd);
void tls_free(struct tls *t); /* says goodbye, if that is possible without waiting; NULL is fine */

/* As recv and send: -1 and errno, EAGAIN if there is something to wait for, EPROTO if TLS itself failed. */
ssize_t tls_recv(struct tls *t, void *to, size_t n);
ssize_t tls_send(struct tls *t, const void *p, size_t n);

/* UV_READABLE and UV_WRITABLE to poll for, by one who wants to do `events`; others are passed on. To be asked
 * again after each tls_recv and tls_send. */
int tls_events(const struct tls *t, int events);

/* The handshake is not over. */
bool tls_greeting(const struct tls *t);

/* Why it failed, after EPROTO; for the log. */
const char *tls_trouble(const struct tls *t);

#endif
