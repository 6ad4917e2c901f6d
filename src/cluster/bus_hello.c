#include "cluster/bus_hello.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/endian.h"

#define BUS_MAC 32

static const char bus_magic[8] = {'M', 'A', 'Y', 'F', 'L', 'Y', 'B', 1}; /* the last byte is the version */

/* -- parts of a message ------------------------------------------------------------------- */

/* An absent id is forty NULs. */
static void hello_put_id(struct buf *out, const char *id)
{
    char raw[BUS_NODE_ID] = {0};
    if (*id) memcpy(raw, id, BUS_NODE_ID);
    buf_append(out, raw, sizeof raw);
}

static bool hello_get_id(const char *p, char id[BUS_NODE_ID + 1], bool may_be_absent)
{
    static const char absent[BUS_NODE_ID];
    memcpy(id, p, BUS_NODE_ID);
    id[BUS_NODE_ID] = '\0';
    if (may_be_absent && memcmp(p, absent, BUS_NODE_ID) == 0) return true;
    return bus_is_node_id(id);
}

bool bus_is_node_id(const char *id)
{
    return strlen(id) == BUS_NODE_ID && strspn(id, "0123456789abcdef") == BUS_NODE_ID;
}

/* -- macs ----------------------------------------------------------------------------------- */

static void hello_mac(const char *label, const struct bus_nonces *n, bytes message, bytes secret,
                      u8 mac[BUS_MAC])
{
    struct buf text = {0};
    unsigned size = BUS_MAC;
    buf_append(&text, label, strlen(label) + 1);
    buf_append(&text, n->acceptor, BUS_NONCE);
    buf_append(&text, n->connector, BUS_NONCE);
    buf_append_bytes(&text, message);
    const void *key = secret.n ? secret.p : ""; /* NULL would mean the key of the call before */
    CHECK(HMAC(EVP_sha256(), key, (int)secret.n, (const u8 *)text.p, text.n, mac, &size) && size == BUS_MAC);
    buf_release(&text);
}

static void hello_sign(struct buf *out, size_t from, const char *label, const struct bus_nonces *n,
                       bytes secret)
{
    u8 mac[BUS_MAC];
    hello_mac(label, n, bytes_of(out->p + from, out->n - from), secret, mac);
    buf_append(out, mac, sizeof mac);
}

static bool hello_is_signed(bytes in, const char *label, const struct bus_nonces *n, bytes secret)
{
    u8 mac[BUS_MAC];
    size_t signed_bytes = in.n - BUS_MAC;
    hello_mac(label, n, bytes_of(in.p, signed_bytes), secret, mac);
    return CRYPTO_memcmp(mac, in.p + signed_bytes, BUS_MAC) == 0;
}

static bool hello_is_ours(bytes in, size_t size)
{
    return in.n == size && memcmp(in.p, bus_magic, sizeof bus_magic) == 0;
}

/* -- messages --------------------------------------------------------------------------------- */

void bus_challenge_write(struct buf *out, const struct bus_nonces *n)
{
    buf_append(out, bus_magic, sizeof bus_magic);
    buf_append(out, n->acceptor, BUS_NONCE);
}

err bus_challenge_read(bytes in, struct bus_nonces *n)
{
    if (!hello_is_ours(in, BUS_CHALLENGE_SIZE)) return ERR_SYNTAX;
    memcpy(n->acceptor, in.p + sizeof bus_magic, BUS_NONCE);
    return OK;
}

void bus_hello_write(struct buf *out, const struct bus_hello *h, const struct bus_nonces *n, bytes secret)
{
    size_t from = out->n;
    char purpose[8] = {(char)h->purpose};
    buf_append(out, bus_magic, sizeof bus_magic);
    buf_append(out, purpose, sizeof purpose);
    hello_put_id(out, h->from);
    hello_put_id(out, h->to);
    append_le64(out, h->cluster);
    buf_append(out, n->connector, BUS_NONCE);
    hello_sign(out, from, "connect", n, secret);
}

err bus_hello_read(bytes in, struct bus_hello *h, struct bus_nonces *n, bytes secret)
{
    if (!hello_is_ours(in, BUS_HELLO_SIZE)) return ERR_SYNTAX;
    memcpy(n->connector, in.p + 104, BUS_NONCE);
    if (!hello_is_signed(in, "connect", n, secret)) return ERR_TYPE;
    if ((u8)in.p[8] >= BUS_PURPOSES) return ERR_SYNTAX;
    h->purpose = (enum bus_purpose)in.p[8];
    h->cluster = get_le64(in.p + 96);
    if (!hello_get_id(in.p + 16, h->from, false) || !hello_get_id(in.p + 56, h->to, true)) return ERR_SYNTAX;
    return OK;
}

void bus_welcome_write(struct buf *out, const char *node, u64 cluster, const struct bus_nonces *n,
                       bytes secret)
{
    size_t from = out->n;
    buf_append(out, bus_magic, sizeof bus_magic);
    hello_put_id(out, node);
    append_le64(out, cluster);
    hello_sign(out, from, "accept", n, secret);
}

err bus_welcome_read(bytes in, char node[BUS_NODE_ID + 1], u64 *cluster, const struct bus_nonces *n,
                     bytes secret)
{
    if (!hello_is_ours(in, BUS_WELCOME_SIZE)) return ERR_SYNTAX;
    if (!hello_is_signed(in, "accept", n, secret)) return ERR_TYPE;
    *cluster = get_le64(in.p + 48);
    return hello_get_id(in.p + 8, node, false) ? OK : ERR_SYNTAX;
}
