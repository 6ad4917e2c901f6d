/* The folder of an AOF: its manifest on disk, the names in it, an old single file that moves in, and what
 * goes. */
#ifndef MAYFLY_PERSIST_AOF_FOLDER_H
#define MAYFLY_PERSIST_AOF_FOLDER_H

#include "persist/aof.h"
#include "persist/aof_manifest.h"

struct aof_removal;

struct aof_folder {
    const struct log *log;
    uv_loop_t *loop; /* for removing files in the background; or NULL */
    char *dir, *filename, *path, *manifest_name;
    struct aof_manifest m;
    bool there;                  /* the manifest is on disk */
    bool wants_lock;
    int lock;                    /* -1: not held */
    bool in_doubt;               /* … and may be another than m: saving it failed half way */
    struct aof_removal *removal; /* in flight */
};

/* Reads the manifest; moves an old single file in. */
enum aof_found aof_folder_open(struct aof_folder *f, const struct aof_options *o);
void aof_folder_release(struct aof_folder *f);

/* Makes the folder, with a manifest that names nothing, if it is not there. False: the log says why. */
NODISCARD bool aof_folder_make(struct aof_folder *f);

/* Makes sure that no other process uses the folder, if that is wanted. False: one does, or the log says what
 * else. */
NODISCARD bool aof_folder_lock(struct aof_folder *f);

/* Replaces the manifest, on disk and here; `next` is taken over. False: the log says why, and here nothing
 * has changed. */
NODISCARD bool aof_folder_save(struct aof_folder *f, struct aof_manifest *next);

/* "appendonly.aof.3.incr.aof" and the like; `ending` is behind the number. False: too long, and logged. */
NODISCARD bool aof_folder_name(const struct aof_folder *f, u64 seq, const char *ending,
                               char name[AOF_NAME_MAX + 1]);

/* Unlinks history, and then has the manifest forget it. In the background if there is a loop. */
void aof_folder_clean(struct aof_folder *f, const char *point_unlinked,
                      const char *point_forgotten);

/* Unlinks what a crash has left: unfinished files, and finished ones that no manifest came to name.
 * Everything that the manifest names has been loaded. */
void aof_folder_sweep(struct aof_folder *f);

#endif
