#include "config/config_guess.h"

#include <ctype.h>

#include "config/config.h"

#define NAME_MAX_LEN 64

static int letter(char c) { return c == '_' ? '-' : tolower((unsigned char)c); }

/* The number of letters to add, drop, replace or swap with their neighbour to get from one name to the other:
 * optimal string alignment, row by row. */
static u32 distance(bytes a, bytes b)
{
    u32 rows[3][NAME_MAX_LEN + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (u32 j = 0; j <= b.n; j++) last[j] = j;
    for (u32 i = 1; i <= a.n; i++) {
        row[0] = i;
        for (u32 j = 1; j <= b.n; j++) {
            bool same = letter(a.p[i - 1]) == letter(b.p[j - 1]);
            row[j] = MIN(last[j - 1] + !same, MIN(last[j], row[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && letter(a.p[i - 1]) == letter(b.p[j - 2]) &&
                           letter(a.p[i - 2]) == letter(b.p[j - 1]);
            if (swapped) row[j] = MIN(row[j], before[j - 2] + 1);
        }
        u32 *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[b.n];
}

const char *config_guess(bytes name)
{
    const char *nearest = NULL;
    u32 least = name.n < 4 ? 2 : MIN((u32)name.n / 3 + 1, 4u); /* from this distance on it is another word */
    if (name.n > NAME_MAX_LEN) return NULL;
    for (u32 i = 0; i < config_count(); i++) {
        const char *names[] = {config_at(i)->name, config_at(i)->alias};
        for (u32 k = 0; k < ARRAY_LEN(names); k++) {
            bytes known = bytes_str(names[k]);
            u32 far = known.n && known.n <= NAME_MAX_LEN ? distance(name, known) : least;
            if (far >= least) continue;
            least = far;
            nearest = names[k];
        }
    }
    return nearest;
}
