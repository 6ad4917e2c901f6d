#include "base/machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE 4096
#define MEMORY_UNKNOWN ((u64)1 << 30)

/* A cgroup hierarchy as this process sees it. */
struct hierarchy {
    char group[LINE]; /* the process's group, from the hierarchy's root; "": not in this one */
    char top[LINE];   /* the group that is mounted */
    char mount[LINE]; /* its mount point; "": not mounted */
};

/* -- files --------------------------------------------------------------------------- */

static FILE *open_below(const char *root, const char *path)
{
    char whole[2 * LINE];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    return fopen(whole, "re");
}

/* Reads a number from a file. "max", no number or no file: UINT64_MAX. */
static u64 read_limit(const char *root, const char *dir, const char *file)
{
    char path[2 * LINE];
    u64 n = UINT64_MAX;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    FILE *f = open_below(root, path);
    if (!f) return n;
    if (fscanf(f, "%" SCNu64, &n) != 1 || n == 0) n = UINT64_MAX;
    fclose(f);
    return n;
}

/* Whether a comma-separated list contains the word. */
static bool lists(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; (at = strstr(at, word)); at += n)
        if ((at == words || at[-1] == ',') && (at[n] == '\0' || at[n] == ',')) return true;
    return false;
}

/* -- which group, and where it is mounted -------------------------------------------------- */

/* Lines of "4:memory:/a/b" (v1) and "0::/a/b" (v2). */
static void find_groups(const char *root, struct hierarchy *v1, struct hierarchy *v2)
{
    char line[LINE];
    FILE *f = open_below(root, "/proc/self/cgroup");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *words = strchr(line, ':'), *path = words ? strchr(words + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        words++;
        if (!*words) snprintf(v2->group, LINE, "%s", path);
        else if (lists(words, "memory")) snprintf(v1->group, LINE, "%s", path);
    }
    fclose(f);
}

/* "35 31 0:32 /top /mount rw,relatime - cgroup source rw,memory", with any number of optional fields before
 * the dash. */
static void find_mounts(const char *root, struct hierarchy *v1, struct hierarchy *v2)
{
    char line[LINE], top[LINE], mount[LINE], type[64], options[LINE];
    FILE *f = open_below(root, "/proc/self/mountinfo");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        const char *rest = strstr(line, " - ");
        if (!rest || sscanf(line, "%*s %*s %*s %4095s %4095s", top, mount) != 2) continue;
        if (sscanf(rest, " - %63s %*s %4095s", type, options) != 2) continue;
        bool is_v1 = strcmp(type, "cgroup") == 0 && lists(options, "memory");
        if (!is_v1 && strcmp(type, "cgroup2") != 0) continue;
        struct hierarchy *h = is_v1 ? v1 : v2;
        snprintf(h->top, LINE, "%s", top);
        snprintf(h->mount, LINE, "%s", mount);
    }
    fclose(f);
}

/* -- limits -------------------------------------------------------------------------------- */

/* The group's path relative to the mount. A container may see its own group mounted as the root, while the
 * group's name is the host's: then the path is empty. */
static const char *below_mount(const struct hierarchy *h)
{
    size_t n = strcmp(h->top, "/") == 0 ? 0 : strlen(h->top);
    bool below = strncmp(h->group, h->top, n) == 0 && (h->group[n] == '/' || h->group[n] == '\0');
    return below ? h->group + n : "";
}

/* The smallest limit of all groups from the process's own up to the mounted one. */
static u64 smallest(const char *root, const struct hierarchy *h, const char *file)
{
    char dir[2 * LINE];
    u64 least = UINT64_MAX;
    if (!h->group[0] || !h->mount[0]) return least;
    int n = snprintf(dir, sizeof dir, "%s%s", h->mount, below_mount(h));
    size_t top = strlen(h->mount);
    while (n >= 0 && strlen(dir) >= top) {
        least = MIN(least, read_limit(root, dir, file));
        char *slash = strrchr(dir, '/');
        if (!slash || strlen(dir) == top) break;
        *slash = '\0';
    }
    return least;
}

u64 cgroup_memory_limit(const char *root)
{
    struct hierarchy *v1 = calloc(2, sizeof *v1);
    if (!v1) return UINT64_MAX;
    struct hierarchy *v2 = v1 + 1;
    find_groups(root, v1, v2);
    find_mounts(root, v1, v2);
    u64 least = smallest(root, v1, "memory.limit_in_bytes");
    least = MIN(least, smallest(root, v2, "memory.max"));
    least = MIN(least, smallest(root, v2, "memory.high")); /* above it the kernel throttles the process */
    free(v1);
    return least;
}

u64 machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    u64 physical = pages > 0 && size > 0 ? (u64)pages * (u64)size : MEMORY_UNKNOWN;
    return MIN(physical, cgroup_memory_limit(""));
}
