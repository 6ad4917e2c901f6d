/* Applies the TLS configuration. Open connections keep the one they were opened with. */
#include <stdio.h>

#include "base/clock.h"
#include "server/server.h"

#define TOLD_EVERY_MS 1000

static enum tls_verify verify_of(const struct config *c)
{
    if (!strcmp(c->tls_auth_clients.p, "no")) return TLS_VERIFY_NO;
    return strcmp(c->tls_auth_clients.p, "optional") ? TLS_VERIFY_YES : TLS_VERIFY_OPTIONAL;
}

bool server_apply_tls(struct server *s, struct buf *why)
{
    const struct config *c = &s->config;
    struct tls_context *fresh = NULL;
    s->net.config.tls_verify = verify_of(c);
    if (c->tls_port || c->tls_replication || c->tls_cluster) {
        struct tls_options o = {
            .cert_file = c->tls_cert_file.p,
            .key_file = c->tls_key_file.p, .key_file_pass = c->tls_key_file_pass.p,
            .client_cert_file = c->tls_client_cert_file.p,
            .client_key_file = c->tls_client_key_file.p,
            .client_key_file_pass = c->tls_client_key_file_pass.p,
            .dh_params_file = c->tls_dh_params_file.p,
            .ca_cert_file = c->tls_ca_cert_file.p, .ca_cert_dir = c->tls_ca_cert_dir.p,
            .protocols = c->tls_protocols.p,
            .ciphers = c->tls_ciphers.p, .ciphersuites = c->tls_ciphersuites.p,
            .needs_ca = c->tls_replication || c->tls_cluster || verify_of(c) != TLS_VERIFY_NO,
            .prefer_server_ciphers = c->tls_prefer_server_ciphers, .session_caching = c->tls_session_caching,
            .session_cache_size = c->tls_session_cache_size,
            .session_cache_timeout_s = c->tls_session_cache_timeout,
        };
        fresh = tls_context_new(&o, why);
        if (!fresh) return false;
    }
    tls_context_free(s->net.tls);
    s->net.tls = fresh;
    return true;
}

/* At most one line per second, because any client can cause them. */
void server_no_tls(struct net *n, struct conn *c, const char *why)
{
    struct server *s = n->owner;
    i64 now_ms = clock_mono_us() / 1000;
    char others[64] = "";
    if (s->no_tls.told_ms && now_ms - s->no_tls.told_ms < TOLD_EVERY_MS) {
        s->no_tls.untold++;
        return;
    }
    if (s->no_tls.untold)
        snprintf(others, sizeof others, " (%llu others since the last such line)",
                 (unsigned long long)s->no_tls.untold);
    log_line(&s->log, LOG_WARNING, "Error accepting a client connection: %s (addr=%s laddr=%s)%s", why,
             c->peer, c->local, others);
    s->no_tls.told_ms = now_ms;
    s->no_tls.untold = 0;
}
