#include "base/sha256.h"

#include "base/sha.h"

#define ROUNDS 64

/* The fractions of the cube roots of the first 64 primes. */
static const u32 round_constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static u32 sha256_rotate(u32 v, int n) { return v >> n | v << (32 - n); }

static void sha256_expand(const u8 *block, u32 w[ROUNDS])
{
    sha_words(block, w);
    for (int i = 16; i < ROUNDS; i++) {
        u32 early = sha256_rotate(w[i - 15], 7) ^ sha256_rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        u32 late = sha256_rotate(w[i - 2], 17) ^ sha256_rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + early + w[i - 7] + late;
    }
}

static void sha256_add_block(u32 *h, const u8 *block)
{
    u32 w[ROUNDS], v[8];
    sha256_expand(block, w);
    memcpy(v, h, sizeof v);
    for (int i = 0; i < ROUNDS; i++) {
        u32 choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
        u32 majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        u32 mixed = sha256_rotate(v[4], 6) ^ sha256_rotate(v[4], 11) ^ sha256_rotate(v[4], 25);
        u32 up = v[7] + mixed + choice + round_constants[i] + w[i];
        u32 down = (sha256_rotate(v[0], 2) ^ sha256_rotate(v[0], 13) ^ sha256_rotate(v[0], 22)) + majority;
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += up;
        v[0] = up + down;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

void sha256(bytes data, u8 out[SHA256_BYTES])
{
    u32 h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    sha_digest(data, sha256_add_block, h, 8, out);
}

bool sha256_same(const u8 a[SHA256_BYTES], const u8 b[SHA256_BYTES])
{
    u8 diff = 0;
    for (int i = 0; i < SHA256_BYTES; i++) diff |= (u8)(a[i] ^ b[i]);
    return diff == 0;
}
