/* Replaces a region's data by a snapshot, on a node that has other regions, too.
 *
 * The file is complete and synced when this begins. A row records that it is being installed, and its state.
 * Then the old data is deleted, the file is loaded in slices while other regions are served, and the last
 * transaction stores the state and deletes the row. If the node stops meanwhile, it finds the row at the next
 * start, and installs the file from the beginning before it starts the region's group. The region serves no
 * clients until then.
 *
 * (A node whose only region has all slots loads the file beside its data instead: loading_sync.) */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cluster/cluster_parts.h"
#include "cluster/snapshot.h"
#include "persist/disk_file.h"
#include "persist/rdb_file.h"
#include "script/functions.h"

#define SLICE_BYTES (256u << 10)

struct cluster_install {
    struct member *member;
    struct raft_applied at;
    char path[4200];
    uv_idle_t idle;
    bool idles;
    struct rdb_source source;
    int fd;
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

static void install_commit(struct cluster_install *i, bool durable)
{
    struct region *r = i->member->region;
    r->eng->relaxed = !durable;
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

static void install_commit_chunk(void *arg) { install_commit(arg, false); }

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
    rdb_loader_init(&i->loader, &m->region->ks, &i->source, (u64)st.st_size, &policy);
}

/* -- the data ---------------------------------------------------------------------------------- */

/* Splits and merges that this member has not seen gave the region other slots. Members of regions that were
 * merged into it are destroyed first: since the row is durable, they are not needed to apply the merges. */
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
    install_commit(i, true);
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
    install_commit(i, true); /* with the row */
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
static bool install_step(struct cluster_install *i)
{
    struct member *m = i->member;
    err e = rdb_loader_step(&i->loader, SLICE_BYTES);
    if (e == ERR_SYNTAX) {
        log_line(&m->server->log, LOG_WARNING, "%s: %s", i->path, i->loader.error);
        cluster_die(m->cluster, "a snapshot that the group relies on can't be loaded");
    }
    install_commit(i, false);
    return e == ERR_AGAIN;
}

static void install_store(struct cluster_install *i)
{
    struct member *m = i->member;
    struct engine *e = m->region->eng;
    char name[40];
    member_adopt(m, &i->at);
    e->ops->meta.del(e, META_CLUSTER, install_row(m->number, name));
    install_commit(i, true);
    disk_remove_later(&m->server->loop, i->path);
}

/* -- life -------------------------------------------------------------------------------------- */

static void install_on_closed(uv_handle_t *h) { mem_free(h->data); }

static void install_free(struct cluster_install *i)
{
    i->member->install = NULL;
    rdb_loader_release(&i->loader);
    close(i->fd);
    if (i->idles) uv_close((uv_handle_t *)&i->idle, install_on_closed);
    else mem_free(i);
}

static void install_on_idle(uv_idle_t *h)
{
    struct cluster_install *i = h->data;
    struct member *m = i->member;
    if (install_step(i)) return;
    install_store(i);
    struct raft_applied at = i->at;
    install_free(i);
    snapshot_installed(m, &at);
}

static struct cluster_install *install_new(struct member *m, const struct raft_applied *at)
{
    struct cluster_install *i = mem_zalloc(sizeof *i);
    i->member = m;
    i->at = *at;
    snapshot_path(m, i->path, "");
    return m->install = i;
}

void install_begin(struct member *m, const struct raft_applied *at)
{
    member_save(m); /* what was applied before */
    struct cluster_install *i = install_new(m, at);
    install_prepare(i);
    uv_idle_init(&m->server->loop, &i->idle);
    i->idle.data = i;
    i->idles = true;
    uv_idle_start(&i->idle, install_on_idle);
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
        while (install_step(i)) {}
        install_store(i);
        install_free(i);
        if (c->members_n != members) k = 0; /* some have made room */
    }
}
