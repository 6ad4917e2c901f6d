/* The shortest decimal digits that read back as the same double: Grisu2 ("Printing Floating-Point Numbers
 * Quickly and Accurately with Integers", F. Loitsch, PLDI 2010).
 *
 * A double v lies between two midpoints, low and high; any decimal between them reads back as v. All three
 * are multiplied by a power of ten that brings them into a range where the digits of `high` can be extracted
 * from a 64-bit integer one by one, until the remainder is smaller than high - low: then the digits so far
 * lie between the midpoints. The last digit is then decremented as long as that brings the result closer to
 * v. Products have an error of at most one unit in the last place, so the interval is narrowed by that: in
 * about one of a thousand cases there is one digit more than needed. Redis prints the same digits. */
#include <stdlib.h>

#include "base/err.h"
#include "base/num.h"

#define FRACTION_BITS 52
#define HIDDEN_BIT (1ull << FRACTION_BITS)
#define EXPONENT_BIAS (1023 + FRACTION_BITS)

/* f * 2^e */
struct fp {
    u64 f;
    int e;
};

/* 10^k for k = POWER_FIRST, POWER_FIRST + POWER_STEP …, with the highest bit of f set. */
#define POWER_FIRST (-348)
#define POWER_STEP 8
static const struct {
    u64 f;
    int e;
} powers[] = {
    {0xfa8fd5a0081c0288ull, -1220}, {0xbaaee17fa23ebf76ull, -1193}, {0x8b16fb203055ac76ull, -1166},
    {0xcf42894a5dce35eaull, -1140}, {0x9a6bb0aa55653b2dull, -1113}, {0xe61acf033d1a45dfull, -1087},
    {0xab70fe17c79ac6caull, -1060}, {0xff77b1fcbebcdc4full, -1034}, {0xbe5691ef416bd60cull, -1007},
    {0x8dd01fad907ffc3cull, -980}, {0xd3515c2831559a83ull, -954}, {0x9d71ac8fada6c9b5ull, -927},
    {0xea9c227723ee8bcbull, -901}, {0xaecc49914078536dull, -874}, {0x823c12795db6ce57ull, -847},
    {0xc21094364dfb5637ull, -821}, {0x9096ea6f3848984full, -794}, {0xd77485cb25823ac7ull, -768},
    {0xa086cfcd97bf97f4ull, -741}, {0xef340a98172aace5ull, -715}, {0xb23867fb2a35b28eull, -688},
    {0x84c8d4dfd2c63f3bull, -661}, {0xc5dd44271ad3cdbaull, -635}, {0x936b9fcebb25c996ull, -608},
    {0xdbac6c247d62a584ull, -582}, {0xa3ab66580d5fdaf6ull, -555}, {0xf3e2f893dec3f126ull, -529},
    {0xb5b5ada8aaff80b8ull, -502}, {0x87625f056c7c4a8bull, -475}, {0xc9bcff6034c13053ull, -449},
    {0x964e858c91ba2655ull, -422}, {0xdff9772470297ebdull, -396}, {0xa6dfbd9fb8e5b88full, -369},
    {0xf8a95fcf88747d94ull, -343}, {0xb94470938fa89bcfull, -316}, {0x8a08f0f8bf0f156bull, -289},
    {0xcdb02555653131b6ull, -263}, {0x993fe2c6d07b7facull, -236}, {0xe45c10c42a2b3b06ull, -210},
    {0xaa242499697392d3ull, -183}, {0xfd87b5f28300ca0eull, -157}, {0xbce5086492111aebull, -130},
    {0x8cbccc096f5088ccull, -103}, {0xd1b71758e219652cull, -77}, {0x9c40000000000000ull, -50},
    {0xe8d4a51000000000ull, -24}, {0xad78ebc5ac620000ull, 3}, {0x813f3978f8940984ull, 30},
    {0xc097ce7bc90715b3ull, 56}, {0x8f7e32ce7bea5c70ull, 83}, {0xd5d238a4abe98068ull, 109},
    {0x9f4f2726179a2245ull, 136}, {0xed63a231d4c4fb27ull, 162}, {0xb0de65388cc8ada8ull, 189},
    {0x83c7088e1aab65dbull, 216}, {0xc45d1df942711d9aull, 242}, {0x924d692ca61be758ull, 269},
    {0xda01ee641a708deaull, 295}, {0xa26da3999aef774aull, 322}, {0xf209787bb47d6b85ull, 348},
    {0xb454e4a179dd1877ull, 375}, {0x865b86925b9bc5c2ull, 402}, {0xc83553c5c8965d3dull, 428},
    {0x952ab45cfa97a0b3ull, 455}, {0xde469fbd99a05fe3ull, 481}, {0xa59bc234db398c25ull, 508},
    {0xf6c69a72a3989f5cull, 534}, {0xb7dcbf5354e9beceull, 561}, {0x88fcf317f22241e2ull, 588},
    {0xcc20ce9bd35c78a5ull, 614}, {0x98165af37b2153dfull, 641}, {0xe2a0b5dc971f303aull, 667},
    {0xa8d9d1535ce3b396ull, 694}, {0xfb9b7cd9a4a7443cull, 720}, {0xbb764c4ca7a44410ull, 747},
    {0x8bab8eefb6409c1aull, 774}, {0xd01fef10a657842cull, 800}, {0x9b10a4e5e9913129ull, 827},
    {0xe7109bfba19c0c9dull, 853}, {0xac2820d9623bf429ull, 880}, {0x80444b5e7aa7cf85ull, 907},
    {0xbf21e44003acdd2dull, 933}, {0x8e679c2f5e44ff8full, 960}, {0xd433179d9c8cb841ull, 986},
    {0x9e19db92b4e31ba9ull, 1013}, {0xeb96bf6ebadf77d9ull, 1039}, {0xaf87023b9bf0ee6bull, 1066},
};

static struct fp fp_of(double v)
{
    u64 bits;
    memcpy(&bits, &v, sizeof bits);
    u64 fraction = bits & (HIDDEN_BIT - 1);
    int exponent = (int)(bits >> FRACTION_BITS & 0x7ff);
    if (exponent == 0) return (struct fp){fraction, 1 - EXPONENT_BIAS}; /* denormal */
    return (struct fp){fraction | HIDDEN_BIT, exponent - EXPONENT_BIAS};
}

static struct fp fp_normalize(struct fp x)
{
    int shift = __builtin_clzll(x.f);
    return (struct fp){x.f << shift, x.e - shift};
}

static struct fp fp_multiply(struct fp x, struct fp y)
{
    unsigned __int128 product = (unsigned __int128)x.f * y.f;
    return (struct fp){(u64)(product >> 64) + (u64)((u64)product >> 63), x.e + y.e + 64};
}

/* A power of ten that brings 2^exponent into 2^-60 … 2^-32, as *k. */
static struct fp power_for(int exponent, int *k)
{
    int i = ((int)(-(exponent + (int)ARRAY_LEN(powers)) * 0.30102999566398114) - POWER_FIRST) / POWER_STEP;
    while (exponent + powers[i].e + 64 < -60) i++;
    while (exponent + powers[i].e + 64 > -32) i--;
    *k = POWER_FIRST + i * POWER_STEP;
    return (struct fp){powers[i].f, powers[i].e};
}

/* The digits are `rest` below high; v is `wanted` below it. `unit` is one in the last digit. */
static void round_last(char *last, u64 width, u64 rest, u64 unit, u64 wanted)
{
    while (rest < wanted && width - rest >= unit &&
           (rest + unit < wanted || wanted - rest > rest + unit - wanted)) {
        --*last;
        rest += unit;
    }
}

/* Extracts digits of high until they lie within `width` of it. Sets *k to the power of ten of the last
 * digit. */
static int take_digits(struct fp high, u64 width, u64 wanted, char *digits, int *k)
{
    int n = 0, shift = -high.e;
    u64 one = 1ull << shift, above = high.f >> shift, below = high.f & (one - 1);
    int kappa = 10;
    for (u64 div = 1000000000; kappa > 0; div /= 10) {
        u64 digit = above / div;
        if (digit || n) digits[n++] = (char)('0' + digit);
        above -= digit * div;
        kappa--;
        u64 rest = (above << shift) + below;
        if (rest <= width) {
            *k += kappa;
            CHECK(n > 0); /* without a digit `rest` is high itself, which exceeds its width */
            round_last(digits + n - 1, width, rest, div << shift, wanted);
            return n;
        }
    }
    for (u64 scale = 10;; scale *= 10) {
        below *= 10;
        width *= 10;
        kappa--;
        u64 digit = below >> shift;
        if (digit || n) digits[n++] = (char)('0' + digit);
        below &= one - 1;
        if (below < width) {
            *k += kappa;
            CHECK(n > 0);
            round_last(digits + n - 1, width, below, one, wanted * scale);
            return n;
        }
    }
}

/* v > 0 equals digits * 10^*k. Returns the number of digits, at most 18. */
static int shortest_digits(double v, char *digits, int *k)
{
    struct fp x = fp_of(v);
    struct fp high = fp_normalize((struct fp){(x.f << 1) + 1, x.e - 1});
    int nearer = x.f == HIDDEN_BIT ? 2 : 1; /* doubles below a power of two are twice as dense */
    struct fp low = {((x.f << nearer) - 1) << (x.e - nearer - high.e), high.e};
    struct fp power = power_for(high.e, k);
    struct fp w = fp_multiply(fp_normalize(x), power);
    high = fp_multiply(high, power);
    low = fp_multiply(low, power);
    high.f--;
    low.f++;
    *k = -*k;
    return take_digits(high, high.f - low.f, high.f - w.f, digits, k);
}

/* -- writing them ------------------------------------------------------------------------------ */

static char *put_digits(char *to, const char *digits, int n)
{
    memcpy(to, digits, (size_t)n);
    return to + n;
}

static char *put_zeros(char *to, int n)
{
    memset(to, '0', (size_t)n);
    return to + n;
}

static char *put_exponential(char *to, const char *digits, int n, int exponent)
{
    *to++ = digits[0];
    if (n > 1) *to++ = '.';
    to = put_digits(to, digits + 1, n - 1);
    *to++ = 'e';
    *to++ = exponent < 0 ? '-' : '+';
    return to + num_print_i64(to, abs(exponent));
}

/* Small numbers get up to six zeros after the point, large ones up to seven at the end; others an
 * exponent. */
static char *shortest_put_number(char *to, const char *digits, int n, int k)
{
    int exponent = k + n - 1;
    if (k >= 0 && exponent < n + 7) return put_zeros(put_digits(to, digits, n), k);
    if (k >= 0 || (k <= -7 && abs(exponent) >= 4)) return put_exponential(to, digits, n, exponent);
    int before = n + k; /* digits before the point */
    if (before <= 0) {
        *to++ = '0';
        *to++ = '.';
        return put_digits(put_zeros(to, -before), digits, n);
    }
    to = put_digits(to, digits, before);
    *to++ = '.';
    return put_digits(to, digits + before, n - before);
}

size_t num_print_shortest(char *buf, double v)
{
    char digits[24], *to = buf;
    int k;
    if (v < 0) *to++ = '-';
    int n = shortest_digits(v < 0 ? -v : v, digits, &k);
    to = shortest_put_number(to, digits, n, k);
    *to = '\0';
    return (size_t)(to - buf);
}
