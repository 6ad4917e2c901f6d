/* Replaces a region's data by a snapshot, on a node that has other regions, too.
 *
 * The file is complete and synced when this begins. One transaction deletes the old data, and writes a row
 * that records that the snapshot is being installed, and its state. Then the file is loaded in slices while
 * other regions are served, and the last transaction stores the state and deletes the row. When that is
 * synced, the file is removed and the group continues.
 *
 *     install_begin → loading, one at a time, in slices → stored, waits for a sync → snapshot_installed
 *
 * All transactions are in RocksDB's log in this order, so none but the last need be synced. If the node stops
 * meanwhile, it finds the row at the next start, and installs the file from the beginning before it starts
 * the region's group, or it does not find it, and has the old data. The region serves no clients until then.
 *
 * A slice is followed by a rest of three times its length, in wall time, because requests need the loops of
 * several nodes, which may share cores (decision 020).
 *
 * (A node whose only region has all slots loads the file beside its data instead: loading_sync.) */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "persist/disk_file.h"
#include "persist/rdb_file.h"
#include "script/functions.h"

#define SLICE_BYTES (64u << 10) /* most of the work is in the commit, which can't be divided */
#define RESTS 3                 /* times as long as a slice took */
#define SYNC_MS 5               /* between two looks at whether the last transaction is synced */

struct cluster_install {
    struct cluster_install *next; /* of cluster.installs */
    struct member *member;
    struct raft_applied at;
    char path[4200];
    struct rdb_source source;
    int fd;
    u64 size;
    i64 begun_ms; /* by the loop's time */
    bool stored;  /* everything is loaded … */
    u64 mark;     /* … and synced when the logs have come so far */
    struct rdb_loader loader;
};

/* -- rows -------------------------------------------------------------------------------------- */

static bytes install_row(u64 number, char name[40])
{
    return bytes_of(name, (size_t)snprintf(name, 40, "installing %llu", (ull)number));
}

static void install_put_row(const struct cluster_install *i)
{
    struct engine *e = i->member->region->eng;
    struct buf text = {0};
    char name[40];
    member_encode(&i->at, i->member->peer, &text);
    e->ops->meta.put(e, META_CLUSTER, install_row(i->member->number, name), buf_bytes(&text));
    buf_release(&text);
    cluster_write_nodes(i->member->cluster, e); /* came with the snapshot */
}

static void install_commit(struct cluster_install *i)
{
    struct region *r = i->member->region;
    r->eng->relaxed = true;
    bool kept = region_commit(r);
    r->eng->relaxed = false;
    if (!kept) cluster_die(i->member->cluster, "the storage can't keep a snapshot that the group relies on");
    region_begin(r, (i64)MAX(i->at.clock_ms, 1u));
}

/* -- the file ---------------------------------------------------------------------------------- */

static i64 install_read(struct rdb_source *source, void *to, size_t n)
{
    const struct cluster_install *i = (struct cluster_install *)(void *)((char *)source -
                                                                         offsetof(struct cluster_install,
                                                                                  source));
    return read(i->fd, to, n);
}

static bool install_keep_dead(void *arg UNUSED, u32 db UNUSED, bytes key UNUSED, i64 deadline_ms UNUSED)
{
    return true;
}

static void install_commit_chunk(void *arg) { install_commit(arg); }

static void install_open(struct cluster_install *i)
{
    struct member *m = i->member;
    struct stat st;
    i->fd = open(i->path, O_RDONLY | O_CLOEXEC);
    if (i->fd < 0 || fstat(i->fd, &st))
        cluster_die(m->cluster, "a snapshot that the group relies on can't be read");
    i->source.read = install_read;
    bool home = cluster_is_meta(m); /* it has the functions */
    if (home) functions_flush(&m->server->node);
    struct rdb_policy policy = {.replace = true,
                                .checksum = true,
                                .load_dead = install_keep_dead,
                                .commit_chunk = install_commit_chunk,
                                .arg = i,
                                .node = home ? &m->server->node : NULL};
    i->size = (u64)st.st_size;
    rdb_loader_init(&i->loader, &m->region->ks, &i->source, (u64)st.st_size, &policy);
}

/* -- the data ---------------------------------------------------------------------------------- */

/* Splits and merges that this member has not seen gave the region other slots. Members of regions that were
 * merged into it are destroyed first: since the row is written before that is, they are not needed to apply
 * the merges. */
static void install_move(struct cluster_install *i)
{
    struct member *m = i->member;
    struct region *r = m->region;
    struct region_map *map = &m->server->node.regions;
    struct raft_slots to = i->at.slots;
    bool same = m->slots.first == to.first && m->slots.last == to.last;
    if (!same) crash_point("cluster-merge-3");
    cluster_destroy_superseded(m->cluster);
    if (same) return;
    rocks_region_move(r->eng, to.first, to.last);
    install_commit(i);
    m->slots = to;
    r->ks.first_slot = to.first;
    region_map_give(map, r, to.first, to.last);
    region_map_keep(map, r, to.first, to.last);
}

static void install_empty(struct cluster_install *i)
{
    struct region *r = i->member->region;
    region_flushing_all(r);
    r->eng->ops->flush(r->eng, 0);
    install_commit(i); /* with the row */
    crash_point("install-emptied");
    install_move(i);
}

static void install_prepare(struct cluster_install *i)
{
    struct member *m = i->member;
    struct cluster *c = m->cluster;
    m->at.epoch.version = i->at.epoch.version; /* for rule 9 the state is the snapshot's from here on */
    if (!m->region) {
        cluster_destroy_superseded(c);
        struct rocks_region of = {m->number, 1, i->at.slots.first, i->at.slots.last};
        struct region *r = cluster_new_region(c, &of);
        if (!r) cluster_die(c, "a region can't be opened for a snapshot that the group relies on");
        member_give(m, r);
    }
    region_begin(m->region, (i64)MAX(i->at.clock_ms, 1u));
    install_put_row(i);
    install_empty(i);
    install_open(i);
}

/* True: there is more. */
static bool install_slice(struct cluster_install *i)
{
    struct member *m = i->member;
    err e = rdb_loader_step(&i->loader, SLICE_BYTES);
    if (e == ERR_SYNTAX) {
        log_line(&m->server->log, LOG_WARNING, "%s: %s", i->path, i->loader.error);
        cluster_die(m->cluster, "a snapshot that the group relies on can't be loaded");
    }
    install_commit(i);
    crash_point("install-slice");
    return e == ERR_AGAIN;
}

static void install_store(struct cluster_install *i)
{
    struct member *m = i->member;
    struct engine *e = m->region->eng;
    char name[40];
    member_adopt(m, &i->at);
    e->ops->meta.del(e, META_CLUSTER, install_row(m->number, name));
    install_commit(i);
    i->stored = true;
    crash_point("install-stored");
}

/* -- life -------------------------------------------------------------------------------------- */

static struct cluster_install *install_new(struct member *m, const struct raft_applied *at)
{
    struct cluster_install *i = mem_zalloc(sizeof *i), **end = &m->cluster->installs;
    i->member = m;
    i->at = *at;
    i->begun_ms = (i64)uv_now(&m->server->loop);
    snapshot_path(m, i->path, "");
    while (*end) end = &(*end)->next;
    return *end = m->install = i;
}

static void install_free(struct cluster_install *i)
{
    struct cluster_install **at = &i->member->cluster->installs;
    while (*at != i) at = &(*at)->next;
    *at = i->next;
    i->member->install = NULL;
    rdb_loader_release(&i->loader);
    close(i->fd);
    mem_free(i);
}

/* The last transaction is synced. */
static void install_end(struct cluster_install *i)
{
    struct member *m = i->member;
    struct raft_applied at = i->at;
    disk_remove_later(&m->server->loop, i->path);
    install_free(i);
    crash_point("install-synced");
    snapshot_installed(m, &at);
}

/* Returns how many us it took. */
static i64 install_work(struct cluster_install *i)
{
    i64 begun_us = clock_mono_us();
    if (!install_slice(i)) {
        install_store(i);
        i->mark = cluster_log_sync(i->member->log);
    }
    return clock_mono_us() - begun_us;
}

/* Those that are stored end when they are synced; the first of the others is loaded. Its old files may still
 * have to be removed: a row would wait for that. */
void install_on_timer(uv_timer_t *t)
{
    struct cluster *c = t->data;
    struct cluster_install *i = c->installs;
    i64 wait_ms = SYNC_MS;
    while (i && i->stored && cluster_logs_synced(c->logs) < i->mark) i = i->next;
    if (!i) {
        if (c->installs) uv_timer_start(t, install_on_timer, SYNC_MS, 0);
        return;
    }
    if (i->stored) install_end(i);
    else if (!rocks_drops_files(c->server->rocks)) wait_ms = install_work(i) * RESTS / 1000;
    uv_timer_start(t, install_on_timer, (u64)MAX(wait_ms, 1), 0);
}

void install_begin(struct member *m, const struct raft_applied *at)
{
    member_save(m); /* what was applied before */
    install_prepare(install_new(m, at));
    uv_timer_start(&m->cluster->install_timer, install_on_timer, 1, 0);
}

bool install_is_busy(const struct cluster *c)
{
    u32 n = 0;
    for (const struct cluster_install *i = c->installs; i; i = i->next) n++;
    return n >= INSTALLS_MAX;
}

void install_info(const struct cluster *c, struct buf *b)
{
    u32 n = 0;
    for (const struct cluster_install *i = c->installs; i; i = i->next, n++)
        buf_printf(b,
                   "snapshot_loading%u:region=%llu,index=%llu,bytes=%llu,bytes_total=%llu,seconds=%lld\r\n",
                   n, (ull)i->member->number, (ull)i->at.index, (ull)rdb_loader_offset(&i->loader),
                   (ull)i->size, (long long)(((i64)uv_now(&c->server->loop) - i->begun_ms) / 1000));
}

void install_stop(struct member *m)
{
    if (m->install) install_free(m->install);
}

void install_erase(struct member *m, struct engine *e)
{
    char name[40], path[4200];
    e->ops->meta.del(e, META_CLUSTER, install_row(m->number, name));
    snapshot_path(m, path, "");
    unlink(path);
}

/* -- after a restart --------------------------------------------------------------------------- */

struct install_find {
    u64 number;
    struct raft_applied at;
    u64 peer;
    bool found;
};

static void install_find_row(void *arg, bytes name, bytes value, double unused UNUSED)
{
    struct install_find *f = arg;
    char own[40];
    if (bytes_eq(name, install_row(f->number, own))) f->found = member_decode(value, &f->at, &f->peer);
}

/* The file is needed until then. */
static void install_sync(struct cluster *c)
{
    struct rocks_log_batch *b = rocks_log_batch_open(c->server->rocks);
    if (!rocks_log_write(b, true)) cluster_die(c, "the storage can't sync a snapshot");
    rocks_log_batch_close(b);
}

/* Files of snapshots that no row asks for: the node stopped before there was one, or after it was deleted. */
static void install_remove_files(struct cluster *c)
{
    const char *folder = c->server->config.dir.p;
    char path[4200];
    DIR *d = opendir(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (strncmp(f->d_name, SNAPSHOT_FILE, strlen(SNAPSHOT_FILE)) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, f->d_name);
        unlink(path); /* at once: the next one may get this name */
    }
    if (d) closedir(d);
}

void install_resume(struct cluster *c)
{
    for (u32 k = 0; k < c->members_n; k++) {
        struct member *m = c->members[k];
        struct install_find f = {.number = m->number};
        struct engine *e = m->region->eng;
        e->ops->meta.each(e, META_CLUSTER, install_find_row, &f);
        if (!f.found) continue;
        m->peer = f.peer;
        log_line(&c->server->log, LOG_NOTICE, "Installing the snapshot of region %llu again.",
                 (ull)m->number);
        u32 members = c->members_n;
        struct cluster_install *i = install_new(m, &f.at);
        install_prepare(i);
        while (install_slice(i)) {}
        install_store(i);
        install_sync(c);
        install_free(i);
        if (c->members_n != members) k = 0; /* some have made room */
    }
    install_remove_files(c);
}
