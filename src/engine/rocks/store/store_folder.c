#include "engine/rocks/store/store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST "MANIFEST-"
#define FIRST_MANIFEST 1 /* of a database that is being created; replaced when it is first opened */

/* What the names of the files in a folder say. */
struct contents {
    bool current;
    u64 data_files; /* tables, blobs, logs, options: files that exist only once there is a database */
    char data_file[256];
    u64 newest_manifest; /* 0: there is none */
};

/* "123.sst" and the like. */
static bool numbered(const char *name, const char *ending)
{
    char *end;
    strtoull(name, &end, 10);
    return end != name && strcmp(end, ending) == 0;
}

static bool is_data_file(const char *name)
{
    return numbered(name, ".sst") || numbered(name, ".ldb") || numbered(name, ".blob") ||
           numbered(name, ".log") || strncmp(name, "OPTIONS-", 8) == 0;
}

static void count_file(struct contents *c, const char *name)
{
    if (strcmp(name, "CURRENT") == 0) c->current = true;
    if (strncmp(name, MANIFEST, strlen(MANIFEST)) == 0)
        c->newest_manifest = MAX(c->newest_manifest, strtoull(name + strlen(MANIFEST), NULL, 10));
    if (is_data_file(name) && c->data_files++ == 0)
        snprintf(c->data_file, sizeof c->data_file, "%s", name);
}

/* A folder that can't be listed counts as empty: RocksDB's own attempt to create it gives the reason. */
static struct contents list(const char *dir)
{
    struct contents c = {0};
    DIR *d = opendir(dir);
    if (!d) return c;
    for (struct dirent *e; (e = readdir(d));) count_file(&c, e->d_name);
    closedir(d);
    return c;
}

static int open_in(const char *dir, const char *name)
{
    char path[4096 + 300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

bool store_folder_in_use(const char *dir, struct buf *why)
{
    int fd = open_in(dir, "LOCK");
    if (fd < 0) return false;
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    bool held = fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    if (held && why)
        buf_printf(why,
                   "can't open the RocksDB database in %s: another process has it open: stop process %d, "
                   "or give this one another directory",
                   dir, (int)lock.l_pid);
    return held;
}

/* The name in CURRENT; false: it holds none. */
static bool named_manifest(const char *dir, char name[64])
{
    int fd = open_in(dir, "CURRENT");
    ssize_t n = fd >= 0 ? read(fd, name, 63) : 0;
    if (fd >= 0) close(fd);
    if (n < 1 || name[n - 1] != '\n') return false;
    name[n - 1] = '\0';
    return strncmp(name, MANIFEST, strlen(MANIFEST)) == 0 && !strchr(name, '/');
}

#define NOTHING_CHANGED                                                                                      \
    "Nothing was changed. Restore the missing file, or the whole folder, from a backup. To begin an empty " \
    "database, move the folder away or set another 'dir'"

static enum store_folder without_current(const char *dir, const struct contents *c, struct buf *why)
{
    if (c->data_files == 0 && c->newest_manifest == 0) return STORE_FOLDER_EMPTY;
    if (c->data_files == 0 && c->newest_manifest == FIRST_MANIFEST) return STORE_FOLDER_INTERRUPTED;
    if (!why) return STORE_FOLDER_INCOMPLETE;
    buf_printf(why, "%s holds files of a RocksDB database", dir);
    if (c->data_files)
        buf_printf(why, " (%s and %llu more)", c->data_file, (unsigned long long)c->data_files - 1);
    buf_append_str(why, ", but the file CURRENT, which names its MANIFEST, is missing. ");
    if (c->newest_manifest)
        buf_printf(why, "If that is the only file missing, this brings it back: echo " MANIFEST
                   "%06llu > %s/CURRENT. ", (unsigned long long)c->newest_manifest, dir);
    buf_append_str(why, NOTHING_CHANGED);
    return STORE_FOLDER_INCOMPLETE;
}

enum store_folder store_folder_look(const char *dir, struct buf *why)
{
    struct contents c = list(dir);
    char manifest[64];
    if (!c.current) return without_current(dir, &c, why);
    if (!named_manifest(dir, manifest)) {
        if (why) buf_printf(why, "%s/CURRENT does not name a MANIFEST. " NOTHING_CHANGED, dir);
        return STORE_FOLDER_INCOMPLETE;
    }
    int fd = open_in(dir, manifest);
    if (fd >= 0) {
        close(fd);
        return STORE_FOLDER_DATABASE;
    }
    if (why) buf_printf(why, "%s/CURRENT names %s, which is missing. " NOTHING_CHANGED, dir, manifest);
    return STORE_FOLDER_INCOMPLETE;
}
