/* See tls.h. OpenSSL works on the socket itself. Its error queue is emptied before each call, so that what is
 * found there afterwards belongs to the call. */
#include "net/tls.h"

#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <uv.h>

#include "base/alloc.h"

struct tls_context {
    SSL_CTX *server, *client;
};

struct tls {
    SSL *ssl;
    bool read_wants_write, write_wants_read;
    char trouble[160];
};

/* -- contexts -------------------------------------------------------------------------------------------- */

static bool given(const char *s) { return s && *s; }

static bool complain(struct buf *why, const char *what, const char *about)
{
    char text[160] = "";
    unsigned long code = ERR_get_error();
    if (code) ERR_error_string_n(code, text, sizeof text);
    buf_append_str(why, what);
    if (given(about)) buf_printf(why, ": %s", about);
    if (*text) buf_printf(why, ": %s", text);
    return false;
}

static int password(char *to, int size, int writing UNUSED, void *arg)
{
    const char *pass = arg;
    int length = given(pass) ? (int)strlen(pass) : 0;
    if (!length || length >= size) return -1; /* never asks at a terminal */
    memcpy(to, pass, (size_t)length + 1);
    return length;
}

static bool set_protocols(SSL_CTX *ctx, const char *words, struct buf *why)
{
    static const struct {
        const char *name;
        u64 off;
    } known[] = {
        {"TLSv1", SSL_OP_NO_TLSv1}, {"TLSv1.1", SSL_OP_NO_TLSv1_1},
        {"TLSv1.2", SSL_OP_NO_TLSv1_2}, {"TLSv1.3", SSL_OP_NO_TLSv1_3},
    };
    u64 off = SSL_OP_NO_SSLv3;
    for (u32 i = 0; i < ARRAY_LEN(known); i++) off |= known[i].off;
    if (!given(words)) words = "TLSv1.2 TLSv1.3";
    for (const char *at = words; *at;) {
        size_t n = strcspn(at, " ");
        bool found = n == 0;
        for (u32 i = 0; i < ARRAY_LEN(known); i++) {
            if (strlen(known[i].name) != n || strncasecmp(known[i].name, at, n) != 0) continue;
            off &= ~known[i].off;
            found = true;
        }
        if (!found) return complain(why, "Invalid tls-protocols specified", words);
        at += n + (at[n] == ' ');
    }
    SSL_CTX_set_options(ctx, off);
    return true;
}

static bool set_certificate(SSL_CTX *ctx, const char *cert, const char *key, const char *pass,
                            struct buf *why)
{
    SSL_CTX_set_default_passwd_cb(ctx, password);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, (void *)pass);
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) <= 0)
        return complain(why, "Failed to load certificate", cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) <= 0)
        return complain(why, "Failed to load private key", key);
    /* The text belongs to the caller: it must not be used later. */
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    return true;
}

static bool set_dh(SSL_CTX *ctx, const char *path, struct buf *why)
{
    BIO *file = BIO_new_file(path, "r");
    EVP_PKEY *dh = file ? PEM_read_bio_Parameters(file, NULL) : NULL;
    BIO_free(file);
    if (dh && SSL_CTX_set0_tmp_dh_pkey(ctx, dh) > 0) return true;
    EVP_PKEY_free(dh);
    return complain(why, "Failed to load DH params file", path);
}

static SSL_CTX *new_context(const struct tls_options *o, bool client, struct buf *why)
{
    SSL_CTX *ctx = SSL_CTX_new(client ? TLS_client_method() : TLS_server_method());
    if (!ctx) return NULL;
    bool own = client && given(o->client_cert_file);
    const char *cert = own ? o->client_cert_file : o->cert_file;
    const char *key = own ? o->client_key_file : o->key_file;
    const char *pass = own ? o->client_key_file_pass : o->key_file_pass;
    SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF |
                                 (o->prefer_server_ciphers ? SSL_OP_CIPHER_SERVER_PREFERENCE : 0));
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS); /* an idle connection owns almost nothing */
    bool ok = set_protocols(ctx, o->protocols, why);
    if (ok && !client) {
        SSL_CTX_set_session_cache_mode(ctx, o->session_caching ? SSL_SESS_CACHE_SERVER : SSL_SESS_CACHE_OFF);
        SSL_CTX_sess_set_cache_size(ctx, o->session_cache_size);
        SSL_CTX_set_timeout(ctx, o->session_cache_timeout_s);
        SSL_CTX_set_session_id_context(ctx, (const unsigned char *)"mayfly", 6);
    }
    if (ok && (!client || given(cert))) ok = set_certificate(ctx, cert, key, pass, why);
    if (ok && (given(o->ca_cert_file) || given(o->ca_cert_dir)) &&
        SSL_CTX_load_verify_locations(ctx, given(o->ca_cert_file) ? o->ca_cert_file : NULL,
                                      given(o->ca_cert_dir) ? o->ca_cert_dir : NULL) <= 0)
        ok = complain(why, "Failed to configure CA certificate(s) file/directory", o->ca_cert_file);
    if (ok && given(o->dh_params_file)) ok = set_dh(ctx, o->dh_params_file, why);
    if (ok && given(o->ciphers) && !SSL_CTX_set_cipher_list(ctx, o->ciphers))
        ok = complain(why, "Failed to configure ciphers", o->ciphers);
    if (ok && given(o->ciphersuites) && !SSL_CTX_set_ciphersuites(ctx, o->ciphersuites))
        ok = complain(why, "Failed to configure ciphersuites", o->ciphersuites);
    if (ok) return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static bool complete(const struct tls_options *o, struct buf *why)
{
    if (!given(o->cert_file)) return complain(why, "No tls-cert-file configured!", NULL);
    if (!given(o->key_file)) return complain(why, "No tls-key-file configured!", NULL);
    if (given(o->client_cert_file) && !given(o->client_key_file))
        return complain(why, "No tls-client-key-file configured!", NULL);
    if (o->needs_ca && !given(o->ca_cert_file) && !given(o->ca_cert_dir))
        return complain(why, "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, "
                             "tls-replication or tls-auth-clients are enabled!", NULL);
    return true;
}

struct tls_context *tls_context_new(const struct tls_options *o, struct buf *why)
{
    struct tls_context *c = mem_zalloc(sizeof *c);
    ERR_clear_error();
    if (complete(o, why) && (c->server = new_context(o, false, why)) &&
        (c->client = new_context(o, true, why)))
        return c;
    tls_context_free(c);
    return NULL;
}

void tls_context_free(struct tls_context *c)
{
    if (!c) return;
    SSL_CTX_free(c->server);
    SSL_CTX_free(c->client);
    mem_free(c);
}

/* -- connections -------------------------------------------------------------------------- */

static struct tls *tls_new(SSL_CTX *ctx, int fd)
{
    SSL *ssl = SSL_new(ctx);
    if (!ssl || !SSL_set_fd(ssl, fd)) {
        SSL_free(ssl);
        return NULL;
    }
    struct tls *t = mem_zalloc(sizeof *t);
    t->ssl = ssl;
    return t;
}

struct tls *tls_accept(struct tls_context *c, int fd, enum tls_verify verify)
{
    struct tls *t = c ? tls_new(c->server, fd) : NULL;
    if (!t) return NULL;
    int mode = verify == TLS_VERIFY_NO ? SSL_VERIFY_NONE : SSL_VERIFY_PEER;
    if (verify == TLS_VERIFY_YES) mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_set_verify(t->ssl, mode, NULL);
    SSL_set_accept_state(t->ssl);
    return t;
}

struct tls *tls_connect(struct tls_context *c, int fd)
{
    struct tls *t = c ? tls_new(c->client, fd) : NULL;
    if (!t) return NULL;
    SSL_set_verify(t->ssl, SSL_VERIFY_PEER, NULL);
    SSL_set_connect_state(t->ssl);
    return t;
}

void tls_free(struct tls *t)
{
    if (!t) return;
    if (!*t->trouble && SSL_is_init_finished(t->ssl)) SSL_shutdown(t->ssl);
    ERR_clear_error();
    SSL_free(t->ssl);
    mem_free(t);
}

/* Translates a call that returned `rc` to what recv and send would return. */
static ssize_t failed(struct tls *t, int rc, bool *wants_read, bool *wants_write)
{
    int code = errno;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        *wants_read = true;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_WANT_WRITE:
        *wants_write = true;
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL:
        snprintf(t->trouble, sizeof t->trouble, "%s",
                 code ? strerror(code) : "the peer closed the connection");
        errno = code && code != EAGAIN ? code : ECONNRESET;
        return -1;
    default:
        ERR_error_string_n(ERR_peek_last_error(), t->trouble, sizeof t->trouble);
        errno = EPROTO;
        return -1;
    }
}

ssize_t tls_recv(struct tls *t, void *to, size_t n)
{
    bool expected;
    t->read_wants_write = false;
    ERR_clear_error();
    errno = 0;
    int rc = SSL_read(t->ssl, to, (int)MIN(n, (size_t)INT_MAX));
    return rc > 0 ? rc : failed(t, rc, &expected, &t->read_wants_write);
}

ssize_t tls_send(struct tls *t, const void *p, size_t n)
{
    bool expected;
    t->write_wants_read = false;
    if (n == 0) return 0;
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write(t->ssl, p, (int)MIN(n, (size_t)INT_MAX));
    if (rc > 0) return rc;
    ssize_t result = failed(t, rc, &t->write_wants_read, &expected);
    if (result == 0) errno = EPIPE;
    return result == 0 ? -1 : result;
}

/* Data that was already decrypted does not make a socket readable. A socket is nearly always writable, so
 * polling for that brings the caller back at once. */
int tls_events(const struct tls *t, int events)
{
    int poll = events;
    if (events & UV_WRITABLE && t->write_wants_read) poll = (poll & ~UV_WRITABLE) | UV_READABLE;
    if (events & UV_READABLE && (t->read_wants_write || SSL_pending(t->ssl))) poll |= UV_WRITABLE;
    return poll;
}

bool tls_handshaking(const struct tls *t) { return !SSL_is_init_finished(t->ssl); }

const char *tls_trouble(const struct tls *t) { return t->trouble; }
