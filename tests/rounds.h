/* How often a long random test goes round. AddressSanitizer makes it three times as slow, so under that it goes round a
 * third as often: the plain build has compared all of the results. */
#ifndef MAYFLY_TESTS_ROUNDS_H
#define MAYFLY_TESTS_ROUNDS_H

#ifdef __SANITIZE_ADDRESS__
#define ROUNDS(n) ((n) / 3)
#else
#define ROUNDS(n) (n)
#endif

#endif
