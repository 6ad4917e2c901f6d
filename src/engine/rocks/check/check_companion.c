/* Checks companions (companion.h): the number of rows is that of the head, the key's flag agrees with the
 * head, and those that outlive their key are the ones marked in meta_info. */
#include "engine/rocks/check/check.h"

void check_add_mark(struct check_marks *m, bytes p)
{
    m->n++;
    m->sum += hash_bytes(p, 0);
}

/* The head comes first: its key is a prefix of the rows' keys. */
static bool check_read_head(struct check *c, const struct check_key *k, struct codec_companion *head)
{
    bytes rest, raw;
    if (!check_row(c, k, FAM_COMPANION, &rest) || rest.n) return false;
    raw = store_iter_value(c->lane[FAM_COMPANION]);
    bool known = codec_companion_read(raw, head);
    if (!known) check_problem(c, k, "the head of its companion can't be decoded (%zu bytes)", raw.n);
    check_next(c, FAM_COMPANION);
    return known;
}

static u64 count_rows(struct check *c, const struct check_key *k, u64 version)
{
    bytes rest, name;
    u64 n = 0, of;
    for (; check_row(c, k, FAM_COMPANION, &rest); check_next(c, FAM_COMPANION)) {
        if (!codec_version_read(rest, &of, &name)) {
            check_problem(c, k, "a row of its companion is too short (%zu bytes)", rest.n);
            continue;
        }
        if (c->made_here && of > c->last_version)
            check_problem(c, k, "its companion has version %llu, but the last one given out was %llu",
                          LLU(of), LLU(c->last_version));
        if (version && of == version) n++;
        else c->orphans[FAM_COMPANION]++;
    }
    return n;
}

void check_companion(struct check *c, struct check_key *k)
{
    struct codec_companion head = {0};
    bool there = check_read_head(c, k, &head);
    u64 rows = count_rows(c, k, head.version);
    c->companions += there;
    c->companion_rows += rows;
    if (there && head.kept) check_add_mark(&c->kept, buf_bytes(&k->p));
    if (c->failed) return; /* not all were seen */
    if (there && rows != head.size)
        check_problem(c, k, "its companion's size is stored as %llu, but it has %llu rows", LLU(head.size),
                      LLU(rows));
    if (there && !head.kept && !k->found)
        check_problem(c, k, "it is gone, but its companion, which was to go with it, is there");
    if (k->found && k->m.companion != (there && !head.kept))
        check_problem(c, k, k->m.companion ? "it should have a companion that goes with it, but has none"
                                           : "its companion goes with it, but its flags don't say so");
}

void check_kept(struct check *c)
{
    if (c->damaged || (c->kept.n == c->marks.n && c->kept.sum == c->marks.sum)) return;
    check_problem(c, NULL, "%llu companions stay without their key, but %llu are marked, or others",
                  LLU(c->kept.n), LLU(c->marks.n));
}
