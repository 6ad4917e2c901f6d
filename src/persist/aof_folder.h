/* The folder of an AOF: its manifest on disk, file names, adopting an old single file, and removing files. */
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
    bool in_doubt;               /* … and may differ from m: saving it failed half way */
    struct aof_removal *removal; /* in flight */
};

/* Reads the manifest; moves an old single file into the folder. */
enum aof_found aof_folder_open(struct aof_folder *f, const struct aof_options *o);
void aof_folder_release(struct aof_folder *f);

/* Creates the folder with an empty manifest, unless it exists. False: the log says why. */
NODISCARD bool aof_folder_make(struct aof_folder *f);

/* Locks the folder against other processes, if configured. False: one holds the lock, or the log says what
 * failed. */
NODISCARD bool aof_folder_lock(struct aof_folder *f);

/* Replaces the manifest, on disk and in memory; takes `next` over. False: the log says why, and the one in
 * memory is unchanged. */
NODISCARD bool aof_folder_save(struct aof_folder *f, struct aof_manifest *next);

/* "appendonly.aof.3.incr.aof" and the like; `ending` follows the number. False: too long, and logged. */
NODISCARD bool aof_folder_name(const struct aof_folder *f, u64 seq, const char *ending,
                               char name[AOF_NAME_MAX + 1]);

/* Unlinks history, then removes it from the manifest. In the background if there is a loop. */
void aof_folder_clean(struct aof_folder *f, const char *point_unlinked,
                      const char *point_forgotten);

/* Unlinks files left by a crash: unfinished ones, and finished ones that are not in the manifest. Call it
 * after everything in the manifest has been loaded. */
void aof_folder_sweep(struct aof_folder *f);

#endif
