/* Invariant: a manifest exists before any other file is created in the folder. So files without a manifest
 * mean that it was lost, and are never ignored. */
#include "persist/aof_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "persist/aof_block.h"
#include "persist/disk_file.h"

#define NAME_ROOM \
    40 /* what a file's name has behind appendfilename, at most: ".<seq>.base.rdb", and "temp-" */

static char *aof_folder_text_of(const char *a, const char *between, const char *b)
{
    size_t n = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = mem_alloc(n);
    snprintf(text, n, "%s%s%s", a, between, b);
    return text;
}

static bool aof_folder_complain(const struct aof_folder *f, const char *what, const char *name)
{
    log_line(f->log, LOG_WARNING, "AOF: %s %s: %s", what, name, strerror(errno));
    return false;
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* -- names ----------------------------------------------------------------------------------------- */

bool aof_folder_name(const struct aof_folder *f, u64 seq, const char *ending,
                     char name[AOF_NAME_MAX + 1])
{
    if (strlen(f->filename) + NAME_ROOM > AOF_NAME_MAX) {
        errno = ENAMETOOLONG;
        return aof_folder_complain(f, "can't use appendfilename", f->filename);
    }
    snprintf(name, AOF_NAME_MAX + 1, "%s.%llu.%s", f->filename, (unsigned long long)seq, ending);
    return true;
}

static bool aof_folder_begins(const char *name, const char *with, const char *and_then)
{
    size_t n = strlen(with);
    return strncmp(name, with, n) == 0 && strncmp(name + n, and_then, strlen(and_then)) == 0;
}

/* Whether the name is that of one of our files; an increment may hold nothing but its first line. */
static bool is_data(const struct aof_folder *f, const char *name)
{
    return aof_folder_begins(name, f->filename, ".") && (strstr(name, ".base.") || strstr(name, ".incr."));
}

/* Finds a data file in the folder, for an error message: without a manifest there must be none. */
static bool find_orphan(const struct aof_folder *f, char name[AOF_NAME_MAX + 1])
{
    DIR *dir = opendir(f->path);
    bool found = false;
    if (!dir) return false;
    for (struct dirent *d; !found && (d = readdir(dir));) {
        if (!is_data(f, d->d_name)) continue;
        snprintf(name, AOF_NAME_MAX + 1, "%s", d->d_name);
        found = true;
    }
    closedir(dir);
    return found;
}

static bool is_named(const struct aof_folder *f, const char *name)
{
    for (u32 i = 0; i < f->m.n; i++)
        if (strcmp(f->m.v[i].name, name) == 0) return true;
    return false;
}

/* Whether a crash has left this file: unfinished, or finished and not in the manifest. The latter holds
 * nothing of its own if it is a base, or an increment without a block. */
static bool aof_folder_is_left_over(const struct aof_folder *f, int folder, const char *name)
{
    struct stat st;
    if (aof_folder_begins(name, "temp-", f->filename)) return true;
    if (!is_data(f, name) || is_named(f, name) || fstatat(folder, name, &st, 0) != 0) return false;
    if (strstr(name, ".base.") || st.st_size <= AOF_LINE) return true;
    log_line(f->log, LOG_WARNING, "AOF: the manifest does not name %s, so it is not used", name);
    return false;
}

void aof_folder_sweep(struct aof_folder *f)
{
    DIR *dir = opendir(f->path);
    if (!dir) return;
    for (struct dirent *d; (d = readdir(dir));) {
        if (!aof_folder_is_left_over(f, dirfd(dir), d->d_name)) continue;
        log_line(f->log, LOG_NOTICE, "Removing %s, which was not finished", d->d_name);
        (void)unlinkat(dirfd(dir), d->d_name, 0);
    }
    closedir(dir);
}

/* -- the manifest ---------------------------------------------------------------------------------- */

/* Whether the manifest on disk equals `m`. */
static bool on_disk(const struct aof_folder *f, const struct aof_manifest *m)
{
    struct aof_manifest is = {0};
    struct buf a = {0}, b = {0};
    char error[256];
    bool same = aof_manifest_load(&is, f->path, f->manifest_name, error) == OK;
    if (same) {
        aof_manifest_print(&is, &a);
        aof_manifest_print(m, &b);
        same = bytes_eq(buf_bytes(&a), buf_bytes(&b));
    }
    aof_manifest_release(&is);
    buf_release(&a);
    buf_release(&b);
    return same;
}

bool aof_folder_save(struct aof_folder *f, struct aof_manifest *next)
{
    if (aof_manifest_save(next, f->path, f->manifest_name)) {
        aof_manifest_release(&f->m);
        f->m = *next;
        *next = (struct aof_manifest){0};
        f->there = true;
        f->in_doubt = false;
        return true;
    }
    aof_folder_complain(f, "can't write the manifest", f->manifest_name);
    /* It may have been renamed despite the error: then the old one has to be restored. */
    f->in_doubt = f->there && !on_disk(f, &f->m) &&
                  !aof_manifest_save(&f->m, f->path, f->manifest_name);
    aof_manifest_release(next);
    return false;
}

bool aof_folder_make(struct aof_folder *f)
{
    struct aof_manifest none = {0};
    if (f->there) return true;
    if (mkdir(f->path, 0755) != 0 && errno != EEXIST)
        return aof_folder_complain(f, "can't create the folder", f->path);
    if (!disk_sync_folder(f->dir)) return aof_folder_complain(f, "can't sync the folder", f->dir);
    return aof_folder_save(f, &none);
}

bool aof_folder_lock(struct aof_folder *f)
{
    if (!f->wants_lock || f->lock >= 0) return true;
    f->lock = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->lock < 0) return aof_folder_complain(f, "can't open the folder", f->path);
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK)
        log_line(f->log, LOG_WARNING,
                 "AOF: another server uses %s. Stop it, or give this one a 'dir' of its own.", f->path);
    else
        aof_folder_complain(f, "can't lock the folder", f->path);
    close(f->lock);
    f->lock = -1;
    return false;
}

/* -- an old single file ---------------------------------------------------------------------------- */

/* The manifest names the file first, then it is moved: the next start, also of Redis, detects a crash in
 * between. */
static bool move_in(struct aof_folder *f, const char *from, const char *to)
{
    struct aof_manifest next = {0};
    if (mkdir(f->path, 0755) != 0 && errno != EEXIST)
        return aof_folder_complain(f, "can't create the folder", f->path);
    if (!disk_sync_folder(f->dir)) return aof_folder_complain(f, "can't sync the folder", f->dir);
    crash_point("aof-upgrade-1");
    aof_manifest_add(&next, AOF_BASE, 1, f->filename);
    if (!aof_folder_save(f, &next)) return false;
    crash_point("aof-upgrade-2");
    if (rename(from, to) != 0) return aof_folder_complain(f, "can't move the old file", from);
    if (!disk_sync_folder(f->path) || !disk_sync_folder(f->dir))
        return aof_folder_complain(f, "can't sync the folder", f->path);
    crash_point("aof-upgrade-3");
    log_line(f->log, LOG_NOTICE,
             "Successfully migrated an old-style AOF file (%s) into the AOF directory (%s).",
             f->filename, f->path);
    return true;
}

static bool upgrade(struct aof_folder *f)
{
    char *from = aof_folder_text_of(f->dir, "/", f->filename),
         *to = aof_folder_text_of(f->path, "/", f->filename);
    const struct aof_file *base = aof_manifest_base(&f->m);
    bool increments = aof_manifest_last(&f->m), ok = true;
    if (is_file(from)) {
        bool begun = base && !increments && strcmp(base->name, f->filename) == 0 && !is_file(to);
        if (begun || (!base && !increments)) ok = move_in(f, from, to);
        else
            log_line(f->log, LOG_WARNING,
                     "The old AOF file %s is not used: the folder %s holds a newer one", from,
                     f->path);
    }
    mem_free(from);
    mem_free(to);
    return ok;
}

/* -- opening --------------------------------------------------------------------------------------- */

static enum aof_found aof_folder_look(struct aof_folder *f)
{
    char error[256], orphan[AOF_NAME_MAX + 1];
    struct stat st;
    /* Loading may cut off a torn end, which must not be one that another process is writing. */
    if (stat(f->path, &st) == 0 && S_ISDIR(st.st_mode) && !aof_folder_lock(f)) return AOF_BROKEN;
    err e = aof_manifest_load(&f->m, f->path, f->manifest_name, error);
    if (e == ERR_SYNTAX) {
        log_line(f->log, LOG_WARNING, "The AOF manifest %s/%s can't be used: %s", f->path,
                 f->manifest_name, error);
        return AOF_BROKEN;
    }
    f->there = e == OK;
    if (!f->there && find_orphan(f, orphan)) {
        log_line(
            f->log, LOG_WARNING,
            "The AOF manifest %s/%s is missing, but there is %s: bring the manifest "
            "back, or write one (\"file NAME seq NUMBER type b\" for the base, then \"type i\" for each "
            "increment), or move the folder away if its data is not wanted.",
            f->path, f->manifest_name, orphan);
        return AOF_BROKEN;
    }
    if (!upgrade(f)) return AOF_BROKEN;
    return aof_manifest_base(&f->m) || aof_manifest_last(&f->m) ? AOF_FILES : AOF_NONE;
}

enum aof_found aof_folder_open(struct aof_folder *f, const struct aof_options *o)
{
    *f = (struct aof_folder){
        .log = o->log,
        .loop = o->loop,
        .wants_lock = o->lock,
        .lock = -1,
        .dir = aof_folder_text_of(o->dir, "", ""),
        .filename = aof_folder_text_of(o->filename, "", ""),
        .path = aof_folder_text_of(o->dir, "/", o->dirname),
        .manifest_name = aof_folder_text_of(o->filename, "", ".manifest"),
    };
    return aof_folder_look(f);
}

/* -- history --------------------------------------------------------------------------------------- */

/* Unlinking a big file is slow, so a worker does it. */
struct aof_removal {
    uv_work_t work;
    struct aof_folder *owner; /* NULL: freed; the next start forgets the files */
    char *folder, **names;
    u32 n;
    const char *point_unlinked, *point_forgotten;
};

static void unlink_all(struct aof_removal *r)
{
    char path[4096];
    for (u32 i = 0; i < r->n; i++) {
        snprintf(path, sizeof path, "%s/%s", r->folder, r->names[i]);
        (void)unlink(path);
    }
    crash_point(r->point_unlinked);
}

static void forget_all(struct aof_removal *r)
{
    struct aof_manifest next;
    struct aof_folder *f = r->owner;
    if (!f) return;
    f->removal = NULL;
    aof_manifest_copy(&next, &f->m);
    for (u32 i = 0; i < r->n; i++) aof_manifest_forget(&next, r->names[i]);
    if (aof_folder_save(f, &next)) crash_point(r->point_forgotten);
}

static void free_removal(struct aof_removal *r)
{
    for (u32 i = 0; i < r->n; i++) mem_free(r->names[i]);
    mem_free(r->names);
    mem_free(r->folder);
    mem_free(r);
}

static void aof_folder_in_worker(uv_work_t *work) { unlink_all(work->data); }

static void aof_folder_on_loop(uv_work_t *work, int status UNUSED)
{
    struct aof_removal *r = work->data;
    forget_all(r);
    free_removal(r);
}

void aof_folder_clean(struct aof_folder *f, const char *point_unlinked, const char *point_forgotten)
{
    u32 n = aof_manifest_count(&f->m, AOF_HISTORY);
    if (!n || f->removal) return; /* the next call removes what has come since */
    struct aof_removal *r = mem_zalloc(sizeof *r);
    *r = (struct aof_removal){
        .work.data = r,
        .owner = f,
        .folder = aof_folder_text_of(f->path, "", ""),
        .names = mem_alloc(n * sizeof *r->names),
        .point_unlinked = point_unlinked,
        .point_forgotten = point_forgotten,
    };
    for (u32 i = 0; i < f->m.n; i++) {
        if (f->m.v[i].type != AOF_HISTORY) continue;
        log_line(f->log, LOG_NOTICE, "Removing the history file %s in the background",
                 f->m.v[i].name);
        r->names[r->n++] = aof_folder_text_of(f->m.v[i].name, "", "");
    }
    if (f->loop && uv_queue_work(f->loop, &r->work, aof_folder_in_worker, aof_folder_on_loop) == 0) {
        f->removal = r;
        return;
    }
    unlink_all(r);
    forget_all(r);
    free_removal(r);
}

void aof_folder_release(struct aof_folder *f)
{
    if (f->removal) f->removal->owner = NULL;
    if (f->lock >= 0) close(f->lock);
    aof_manifest_release(&f->m);
    mem_free(f->dir);
    mem_free(f->filename);
    mem_free(f->path);
    mem_free(f->manifest_name);
}
