/* CRC-64 against the vector Redis checks itself with, and against the bit-by-bit definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/crc64.h"
#include "base/rand.h"

static u64 bit_by_bit(u64 crc, bytes data)
{
    for (size_t i = 0; i < data.n; i++) {
        crc ^= (u8)data.p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x95ac9329ac4bc9b5 : 0);
    }
    return crc;
}

static void test_vectors(void **state UNUSED)
{
    assert_true(crc64(0, BYTES_LIT("")) == 0);
    assert_true(crc64(0, BYTES_LIT("123456789")) == 0xe9c6d914c4b8d9ca);
}

static void test_lengths_and_places(void **state UNUSED)
{
    char data[300];
    u64 rng = 1;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)rand_next(&rng);
    for (size_t from = 0; from < 9; from++)
        for (size_t n = 0; from + n <= sizeof data; n++)
            assert_true(crc64(from, bytes_of(data + from, n)) == bit_by_bit(from, bytes_of(data + from, n)));
}

static void test_pieces(void **state UNUSED)
{
    char data[100] = "pieces";
    u64 whole = crc64(0, bytes_of(data, sizeof data));
    for (size_t cut = 0; cut <= sizeof data; cut++)
        assert_true(crc64(crc64(0, bytes_of(data, cut)), bytes_of(data + cut, sizeof data - cut)) == whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_lengths_and_places),
        cmocka_unit_test(test_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
