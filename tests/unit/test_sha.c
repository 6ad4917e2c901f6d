/* SHA-1 and SHA-256 against the vectors of FIPS 180 and every length around a block's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/sha1.h"
#include "base/sha256.h"

static void same_hex(const u8 *digest, int n, const char *expected)
{
    char hex[2 * SHA256_BYTES + 1];
    for (int i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(hex, expected);
}

static void check(bytes data, const char *expected1, const char *expected256)
{
    u8 digest[SHA256_BYTES];
    char hex[2 * SHA1_BYTES + 1];
    sha1(data, digest);
    sha1_hex(digest, hex);
    assert_string_equal(hex, expected1);
    sha256(data, digest);
    same_hex(digest, SHA256_BYTES, expected256);
}

static void test_vectors(void **state UNUSED)
{
    check(BYTES_LIT(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709",
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(BYTES_LIT("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d",
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(BYTES_LIT("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
          "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *million = mem_alloc(1000000);
    memset(million, 'a', 1000000);
    check(bytes_of(million, 1000000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f",
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    mem_free(million);
}

/* One digest over the digests of 0 … 199 bytes: a wrong padding of any length shows. */
static void check_lengths(void (*digest)(bytes data, u8 *out), size_t size, const char *expected)
{
    u8 chain[SHA256_BYTES + 200] = {0}, next[SHA256_BYTES];
    for (size_t n = 0; n < 200; n++) {
        memset(chain + size, (int)n, n);
        digest(bytes_of(chain, size + n), next);
        memcpy(chain, next, size);
    }
    same_hex(chain, (int)size, expected);
}

static void test_lengths(void **state UNUSED)
{
    check_lengths(sha1, SHA1_BYTES, "171c0828c87d798be04c6530cc0709b89671745b");
    check_lengths(sha256, SHA256_BYTES, "480eb042362ca2b32f0b6926534cf3fc60306d9712c731539371295d8fade891");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
