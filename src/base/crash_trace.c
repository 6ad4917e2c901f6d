/* Registers and backtraces. Names come from the symbol table of the executable file, which includes static
 * functions and costs nothing until it is read. (Exporting all functions to the dynamic linker instead would
 * keep link-time optimisation from inlining and dropping them.) A stripped executable shows offsets only. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crash.h"

#define FRAMES_MAX 100

/* -- names of our own functions ------------------------------------------------------------------------- */

struct symbols {
    const char *file; /* NULL: none */
    size_t size;
    const Elf64_Sym *sym;
    size_t count;
    const char *names;
    size_t names_size;
};

static bool trace_within(const struct symbols *s, u64 at, u64 n)
{
    return at <= s->size && n <= s->size - at;
}

static const Elf64_Shdr *section_at(const struct symbols *s, u64 index)
{
    const Elf64_Ehdr *h = (const void *)s->file;
    u64 at = h->e_shoff + index * sizeof(Elf64_Shdr);
    bool there = index < h->e_shnum && trace_within(s, at, sizeof(Elf64_Shdr));
    return there ? (const void *)(s->file + at) : NULL;
}

static void find_table(struct symbols *s)
{
    const Elf64_Ehdr *h = (const void *)s->file;
    if (s->size < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0) return;
    if (h->e_ident[EI_CLASS] != ELFCLASS64) return;
    for (u64 i = 0; i < h->e_shnum; i++) {
        const Elf64_Shdr *table = section_at(s, i);
        const Elf64_Shdr *names = table && table->sh_type == SHT_SYMTAB ? section_at(s, table->sh_link)
                                                                        : NULL;
        if (!names || !trace_within(s, table->sh_offset, table->sh_size) ||
            !trace_within(s, names->sh_offset, names->sh_size))
            continue;
        s->sym = (const void *)(s->file + table->sh_offset);
        s->count = table->sh_size / sizeof *s->sym;
        s->names = s->file + names->sh_offset;
        s->names_size = names->sh_size;
    }
}

static struct symbols open_symbols(void)
{
    struct symbols s = {0};
    struct stat st;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return s;
    void *p = fstat(fd, &st) ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED) return s;
    s.file = p;
    s.size = (size_t)st.st_size;
    find_table(&s);
    return s;
}

static const char *trace_symbol_name(const struct symbols *s, u64 at, u64 *into)
{
    for (size_t i = 0; i < s->count; i++) {
        const Elf64_Sym *x = &s->sym[i];
        if (ELF64_ST_TYPE(x->st_info) != STT_FUNC || at < x->st_value || at - x->st_value >= x->st_size)
            continue;
        if (x->st_name >= s->names_size) return NULL;
        *into = at - x->st_value;
        return s->names + x->st_name;
    }
    return NULL;
}

/* -- frames --------------------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "program(function+0x1f) [0x55e4…] +0x12ab": the last number is the offset in the file. All frames but the
 * first hold a return address, which lies past the function's end if the call is its last instruction: so the
 * name is looked up for the byte before it. */
static void write_frame(struct crash_out *out, const struct symbols *own, const void *own_base, u32 n,
                        void *at)
{
    u32 back = n > 0;
    Dl_info i = {0};
    u64 into = 0;
    if (!dladdr((char *)at - back, &i) || !i.dli_fname) {
        crash_printf(out, "%2u: [%p]\n", n, at);
        return;
    }
    bool is_own = i.dli_fbase == own_base;
    bool moved = !is_own || !own->file || ((const Elf64_Ehdr *)(const void *)own->file)->e_type == ET_DYN;
    u64 offset = (u64)(uintptr_t)at - (moved ? (u64)(uintptr_t)i.dli_fbase : 0);
    /* For the program itself dladdr has argv[0]. */
    const char *file = is_own ? program_invocation_short_name : base_name(i.dli_fname);
    const char *name = is_own ? trace_symbol_name(own, offset - back, &into) : i.dli_sname;
    if (!is_own && name) into = (u64)((char *)at - back - (char *)i.dli_saddr);
    if (name) crash_printf(out, "%2u: %s(%s+0x%llx) [%p] +0x%llx\n", n, file, name,
                           (ull)into + back, at, (ull)offset);
    else crash_printf(out, "%2u: %s [%p] +0x%llx\n", n, file, at, (ull)offset);
}

void *crash_instruction(const ucontext_t *context)
{
#if defined(__x86_64__)
    return (void *)(uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (void *)(uintptr_t)context->uc_mcontext.pc;
#else
    (void)context;
    return NULL;
#endif
}

void crash_write_backtrace(struct crash_out *out, const ucontext_t *context)
{
    void *frames[FRAMES_MAX], *at = crash_instruction(context);
    Dl_info i = {0};
    int n = backtrace(frames, FRAMES_MAX), from = 0;
    while (from < n && frames[from] != at) from++; /* frames above are the signal handler's */
    if (from == n) from = 0;                        /* a jump to an invalid address: show all frames */
    dladdr((void *)(uintptr_t)crash_write_backtrace, &i);
    struct symbols own = open_symbols();
    for (int f = from; f < n; f++) write_frame(out, &own, i.dli_fbase, (u32)(f - from), frames[f]);
    if (own.file) munmap((void *)(uintptr_t)own.file, own.size);
}

void crash_trace_prepare(void)
{
    void *frame;
    backtrace(&frame, 1);
}

/* -- registers ------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)

void crash_write_registers(struct crash_out *out, const ucontext_t *context)
{
    static const struct { const char *name; int at; } registers[] = {
        {"RAX", REG_RAX}, {"RBX", REG_RBX}, {"RCX", REG_RCX}, {"RDX", REG_RDX}, {"RDI", REG_RDI},
        {"RSI", REG_RSI}, {"RBP", REG_RBP}, {"RSP", REG_RSP}, {"R8 ", REG_R8},  {"R9 ", REG_R9},
        {"R10", REG_R10}, {"R11", REG_R11}, {"R12", REG_R12}, {"R13", REG_R13}, {"R14", REG_R14},
        {"R15", REG_R15}, {"RIP", REG_RIP}, {"EFL", REG_EFL}, {"ERR", REG_ERR}, {"CR2", REG_CR2},
    };
    for (u32 i = 0; i < ARRAY_LEN(registers); i++)
        crash_printf(out, "%s:%016llx%s", registers[i].name,
                     (ull)context->uc_mcontext.gregs[registers[i].at], i % 4 == 3 ? "\n" : " ");
}

#elif defined(__aarch64__)

void crash_write_registers(struct crash_out *out, const ucontext_t *context)
{
    const mcontext_t *m = &context->uc_mcontext;
    for (u32 i = 0; i < 31; i++)
        crash_printf(out, "X%02u:%016llx%s", i, (ull)m->regs[i], i % 4 == 3 ? "\n" : " ");
    crash_printf(out, "\nSP :%016llx PC :%016llx PST:%016llx FAR:%016llx\n", (ull)m->sp, (ull)m->pc,
                 (ull)m->pstate, (ull)m->fault_address);
}

#else

void crash_write_registers(struct crash_out *out, const ucontext_t *context UNUSED)
{
    crash_printf(out, "(not known for this processor)\n");
}

#endif
