/* SHA-1 against the vectors of FIPS 180 and every length around a block's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/sha1.h"

static void check(bytes data, const char *expected)
{
    u8 digest[SHA1_BYTES];
    char hex[2 * SHA1_BYTES + 1];
    sha1(data, digest);
    sha1_hex(digest, hex);
    assert_string_equal(hex, expected);
}

static void test_vectors(void **state UNUSED)
{
    check(BYTES_LIT(""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    check(BYTES_LIT("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
    check(BYTES_LIT("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
          "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    char *million = mem_alloc(1000000);
    memset(million, 'a', 1000000);
    check(bytes_of(million, 1000000), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    mem_free(million);
}

/* One digest over the digests of 0 … 199 bytes: a wrong padding of any length shows. */
static void test_lengths(void **state UNUSED)
{
    u8 chain[SHA1_BYTES + 200] = {0};
    for (size_t n = 0; n < 200; n++) {
        u8 next[SHA1_BYTES];
        memset(chain + SHA1_BYTES, (int)n, n);
        sha1(bytes_of(chain, SHA1_BYTES + n), next);
        memcpy(chain, next, SHA1_BYTES);
    }
    char hex[2 * SHA1_BYTES + 1];
    sha1_hex(chain, hex);
    assert_string_equal(hex, "171c0828c87d798be04c6530cc0709b89671745b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
