#include "base/bytes.h"

static inline char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

bool bytes_is(bytes a, const char *word)
{
    for (size_t i = 0; i < a.n; i++) {
        if (word[i] == '\0') return false;
        if (a.p[i] != word[i] && ascii_lower(a.p[i]) != ascii_lower(word[i])) return false;
    }
    return word[a.n] == '\0';
}

const char *bytes_legible(bytes b, char text[BYTES_LEGIBLE + 4])
{
    size_t n = MIN(b.n, BYTES_LEGIBLE);
    for (size_t i = 0; i < n; i++) text[i] = b.p[i] >= ' ' && b.p[i] < 127 ? b.p[i] : '?';
    if (b.n > n) memcpy(text + n, "...", 4);
    else text[n] = '\0';
    return text;
}
