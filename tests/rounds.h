/* How many rounds a long random test runs: half as many as in make soak (MAYFLY_ALL_ROUNDS), and a third of
 * that under AddressSanitizer, which is three times as slow and leaves comparing results to the plain build. */
#ifndef MAYFLY_TESTS_ROUNDS_H
#define MAYFLY_TESTS_ROUNDS_H

#if defined MAYFLY_ALL_ROUNDS
#define ROUNDS(n) (n)
#elif defined __SANITIZE_ADDRESS__
#define ROUNDS(n) ((n) / 6)
#else
#define ROUNDS(n) ((n) / 2)
#endif

#endif
