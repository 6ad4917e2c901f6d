#include "cluster/cluster_map.h"

#include <stdio.h>

#include "cluster/member.h"

void map_release(struct cluster_map *map)
{
    mem_free(map->rows);
    mem_free(map->of_slot);
    *map = (struct cluster_map){0};
}

/* Where the row of a region is, or would be. */
static u32 map_place(const struct cluster_map *map, u64 number)
{
    u32 low = 0, high = map->n;
    while (low < high) {
        u32 mid = (low + high) / 2;
        if (map->rows[mid].number < number) low = mid + 1;
        else high = mid;
    }
    return low;
}

struct map_region *map_find(const struct cluster_map *map, u64 number)
{
    u32 at = map_place(map, number);
    return at < map->n && map->rows[at].number == number ? &map->rows[at] : NULL;
}

/* Rule 3. */
static void map_index(struct cluster_map *map)
{
    map->of_slot = mem_zalloc(RAFT_SLOTS * sizeof *map->of_slot);
    for (u32 i = 0; i < map->n; i++) {
        const struct raft_applied *at = &map->rows[i].at;
        for (u32 slot = at->slots.first; slot <= at->slots.last; slot++) {
            u16 *to = &map->of_slot[slot];
            if (!*to || map->rows[*to - 1].at.epoch.version < at->epoch.version) *to = (u16)(i + 1);
        }
    }
}

struct map_region *map_at(struct cluster_map *map, u32 slot)
{
    if (!map->of_slot) map_index(map);
    return map->of_slot[slot] ? &map->rows[map->of_slot[slot] - 1] : NULL;
}

/* Whether r has taken the first slot of o. */
static bool map_covers(const struct map_region *r, const struct map_region *o)
{
    const struct raft_slots *a = &r->at.slots, *b = &o->at.slots;
    return r->number != o->number && r->at.epoch.version > o->at.epoch.version && a->first <= b->first &&
           b->first <= a->last;
}

/* Rule 4. */
static bool map_is_over(const struct cluster_map *map, const struct map_region *r)
{
    for (u32 i = 0; i < map->n; i++)
        if (map_covers(&map->rows[i], r)) return true;
    return false;
}

static void map_drop_covered(struct cluster_map *map, const struct map_region *r)
{
    u32 n = 0;
    for (u32 i = 0; i < map->n; i++)
        if (!map_covers(r, &map->rows[i])) map->rows[n++] = map->rows[i];
    map->n = n;
}

/* Rule 1. */
bool map_is_news(const struct cluster_map *map, const struct map_region *r)
{
    const struct map_region *had = map_find(map, r->number);
    if (!had) return !map_is_over(map, r);
    struct raft_epoch a = had->at.epoch, b = r->at.epoch;
    if (b.version < a.version || b.conf_ver < a.conf_ver) return false;
    if (b.version > a.version || b.conf_ver > a.conf_ver) return true;
    return r->leader && (r->term > had->term || (r->term == had->term && !had->leader));
}

void map_take(struct cluster_map *map, const struct map_region *r)
{
    if (!map_is_news(map, r)) return;
    map_drop_covered(map, r);
    u32 at = map_place(map, r->number);
    if (at == map->n || map->rows[at].number != r->number) {
        CHECK(map->n < UINT16_MAX);
        if (map->n == map->cap) {
            map->cap = map->cap ? map->cap * 2 : 16;
            map->rows = mem_realloc(map->rows, map->cap * sizeof *map->rows);
        }
        memmove(map->rows + at + 1, map->rows + at, (map->n - at) * sizeof *map->rows);
        map->rows[at] = (struct map_region){.number = r->number};
        map->n++;
    }
    struct map_region *row = &map->rows[at];
    row->leader = r->leader, row->term = r->term;
    row->keys = r->keys, row->bytes = r->bytes, row->load = r->load;
    row->at = r->at;
    row->unsaved = true;
    mem_free(map->of_slot);
    map->of_slot = NULL;
}

void map_print(const struct map_region *r, struct buf *out)
{
    struct raft_applied at = r->at;
    at.index = at.term = at.clock_ms = at.deaths_from_ms = 0; /* change all the time */
    buf_printf(out, "%llu %llx %llu %llu %llu ", (ull)r->number, (ull)r->leader, (ull)r->term, (ull)r->keys,
               (ull)r->bytes);
    member_encode(&at, 0, out);
    if (r->load) buf_printf(out, " q%llu", (ull)r->load);
}

/* Takes the load off the end of a line, if it is there. */
static u64 map_parse_load(bytes *line)
{
    u64 load = 0, digit = 1;
    size_t n = line->n;
    for (; n && line->p[n - 1] >= '0' && line->p[n - 1] <= '9' && line->n - n < 19; n--, digit *= 10)
        load += (u64)(line->p[n - 1] - '0') * digit;
    if (n < 2 || line->p[n - 1] != 'q' || line->p[n - 2] != ' ') return 0;
    line->n = n - 2;
    return load;
}

bool map_parse(bytes line, struct map_region *r)
{
    char text[160];
    ull number, leader, term, keys, size;
    int used = 0;
    u64 peer, load = map_parse_load(&line);
    snprintf(text, sizeof text, "%.*s", (int)MIN(line.n, sizeof text - 1), line.p);
    if (sscanf(text, "%llu %llx %llu %llu %llu %n", &number, &leader, &term, &keys, &size, &used) != 5 ||
        !used)
        return false;
    *r = (struct map_region){
        .number = number, .leader = leader, .term = term, .keys = keys, .bytes = size, .load = load};
    return (size_t)used < line.n &&
           member_decode(bytes_of(line.p + used, line.n - (size_t)used), &r->at, &peer);
}
