/* Glob matching with Redis's exact semantics, quirks included:
 * - a class that is not closed ends with the pattern: "[abc" is "[abc]";
 * - in "[a-]" the ']' is the end of a range, so the class is not closed;
 * - bytes in a range compare as signed, and a range is put in order before its
 *   ends are lowered, so "[a-Z]" matches no letter when case is ignored;
 * - an escaped byte inside a class is compared with its case;
 * - an empty string matches only the empty pattern, not even "*".
 *
 * Every element except '*' consumes exactly one byte. So once a section between
 * two stars has matched at some position, matching it further right cannot help
 * the sections after it: only the last star is ever retried, and the cost is at
 * most pattern length times string length. */
#include "base/glob.h"

static int lower(signed char ch) { return ch >= 'A' && ch <= 'Z' ? ch + ('a' - 'A') : ch; }

static bool glob_same(char a, char b, bool ignore_case)
{
    return a == b || (ignore_case && lower(a) == lower(b));
}

static bool in_range(signed char from, signed char to, signed char ch, bool ignore_case)
{
    /* NOLINTNEXTLINE(bugprone-signed-char-misuse): ranges are of signed characters, as in Redis */
    int low = MIN(from, to), high = MAX(from, to), at = ch;
    if (ignore_case) {
        low = lower((signed char)low);
        high = lower((signed char)high);
        at = lower(ch);
    }
    return low <= at && at <= high;
}

/* Matches ch against the class whose '[' is at p[i]; returns the index after
 * the class. The whole class is always read: its length must not depend on ch. */
static size_t match_class(bytes p, size_t i, char ch, bool ignore_case, bool *matched)
{
    bool found = false;
    i++;
    bool negated = i < p.n && p.p[i] == '^';
    if (negated) i++;
    for (; i < p.n && p.p[i] != ']'; i++) {
        if (p.p[i] == '\\' && p.n - i >= 2) {
            i++;
            if (p.p[i] == ch) found = true;
        } else if (p.n - i >= 3 && p.p[i + 1] == '-') {
            if (in_range((signed char)p.p[i], (signed char)p.p[i + 2], (signed char)ch,
                         ignore_case))
                found = true;
            i += 2;
        } else if (glob_same(p.p[i], ch, ignore_case)) {
            found = true;
        }
    }
    *matched = found != negated;
    return i < p.n ? i + 1 : i;
}

/* Matches ch against the one-byte element at p[i] (i < p.n, not a star). */
static size_t match_one(bytes p, size_t i, char ch, bool ignore_case, bool *matched)
{
    switch (p.p[i]) {
    case '?':
        *matched = true;
        return i + 1;
    case '[':
        return match_class(p, i, ch, ignore_case, matched);
    case '\\':
        if (p.n - i >= 2) i++;
        break;
    }
    *matched = glob_same(p.p[i], ch, ignore_case);
    return i + 1;
}

static size_t skip_stars(bytes p, size_t i)
{
    while (i < p.n && p.p[i] == '*') i++;
    return i;
}

bool glob_match(bytes pattern, bytes s, bool ignore_case)
{
    if (s.n == 0) return pattern.n == 0;
    size_t i = 0, at = 0;
    bool starred = false;
    size_t retry_i = 0, retry_at = 0; /* after the last star: where to resume if the rest fails */
    while (at < s.n) {
        if (i < pattern.n && pattern.p[i] == '*') {
            i = skip_stars(pattern, i);
            if (i == pattern.n) return true;
            starred = true;
            retry_i = i;
            retry_at = at;
            continue;
        }
        bool matched = false;
        if (i < pattern.n) i = match_one(pattern, i, s.p[at], ignore_case, &matched);
        if (matched) {
            at++;
        } else if (starred) {
            i = retry_i;
            at = ++retry_at;
        } else {
            return false;
        }
    }
    return skip_stars(pattern, i) == pattern.n;
}
