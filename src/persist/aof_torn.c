/* How to tell torn from damaged: the length in a block's line is covered by the line's own check. So a block
 * or a line that reaches beyond the end was cut; a whole line or block that is wrong can't come from a crash.
 * Zero bytes at the end count as missing: nothing we write ends with one, and one flipped bit does not turn a
 * line feed into one. */
#include "persist/aof_torn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "persist/disk_io.h"

void aof_loader_path(const struct aof_loader *l, const struct aof_file *file, char path[4096])
{
    snprintf(path, 4096, "%s/%s", l->folder, file->name);
}

const struct aof_file *aof_loader_file(const struct aof_manifest *m, u32 at)
{
    const struct aof_file *base = aof_manifest_base(m);
    if (base && at-- == 0) return base;
    for (u32 i = 0; i < m->n; i++)
        if (m->v[i].type == AOF_INCREMENT && at-- == 0) return &m->v[i];
    return NULL;
}

/* -- refusing -------------------------------------------------------------------------------------- */

err aof_refuse(struct aof_loader *l, u64 offset, const char *fmt, ...)
{
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    log_line(l->o->log, LOG_WARNING,
             "Bad file format reading the append only file %s at offset %llu: %s", l->file->name,
             (unsigned long long)offset, text);
    return ERR_SYNTAX;
}

err aof_refuse_damage(struct aof_loader *l, u64 offset, const char *what)
{
    err e = aof_refuse(l, offset, "%s", what);
    bool last = !aof_loader_file(l->m, l->next + 1);
    const char *more = " and take the increments after it, and its checksum, out of the manifest";
    log_line(l->o->log, LOG_WARNING,
             "Nothing is served from a damaged file. Make a backup of the folder %s; then restore %s from a "
             "copy or a replica, or cut it there, losing everything since: truncate -s %llu %s/%s%s",
             l->folder, l->file->name, (unsigned long long)offset, l->folder, l->file->name,
             last ? "" : more);
    return e;
}

err aof_refuse_read(struct aof_loader *l)
{
    return aof_refuse(l, l->offset, "it can't be read: %s", strerror(l->in.error));
}

/* -- torn ends ------------------------------------------------------------------------------------- */

static bool cut(struct aof_loader *l, u64 offset)
{
    char path[4096];
    aof_loader_path(l, l->file, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && ftruncate(fd, (off_t)offset) == 0 && disk_sync(fd);
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return ok;
}

/* redis-check-aof cuts between commands, which is not enough for one of our blocks. */
static err refuse_torn(struct aof_loader *l, u64 offset, u64 rest)
{
    char path[4096];
    err e = aof_refuse(l, offset, "it ends in the middle of a record (%llu bytes of it are there)",
                       (unsigned long long)rest);
    aof_loader_path(l, l->file, path);
    if (l->form == AOF_READ_BLOCKS)
        log_line(l->o->log, LOG_WARNING,
                 "You can make a backup, and then: 1) start with aof-load-truncated yes, which cuts these "
                 "bytes off, or 2) do so by hand: truncate -s %llu %s",
                 (unsigned long long)offset, path);
    else
        log_line(l->o->log, LOG_WARNING,
                 "You can make a backup, and then: 1) start with aof-load-truncated yes, which cuts these "
                 "bytes off, or 2) run redis-check-aof --fix %s/%s.manifest and start again",
                 l->folder, l->o->filename);
    return e;
}

err aof_torn(struct aof_loader *l, u64 offset)
{
    const char *name = l->file->name;
    u64 rest = l->in.size - offset;
    if (l->in.error) return aof_refuse_read(l);
    if (aof_loader_file(l->m, l->next + 1))
        return aof_refuse_damage(l, offset,
                                 "it ends in the middle of a record, and is not the last file");
    if (!l->o->load_truncated) return refuse_torn(l, offset, rest);
    if (!cut(l, offset))
        return aof_refuse(l, offset, "cutting off its torn end failed: %s", strerror(errno));
    log_line(l->o->log, LOG_WARNING, "!!! Warning: short read while loading the AOF file %s!!!",
             name);
    log_line(l->o->log, LOG_WARNING,
             "AOF loaded anyway because aof-load-truncated is enabled: %s ends in the "
             "middle of a record, and its last %llu bytes, from offset %llu on, were cut off",
             name, (unsigned long long)rest, (unsigned long long)offset);
    l->in.size = l->in.end = offset;
    l->offset = offset;
    return OK;
}
