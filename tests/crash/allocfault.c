/* allocfault: fails the N-th allocation made by some shared objects of a process, once or from then on.
 *
 * It puts its own functions into the tables through which these objects call malloc and its kin. So what CPython
 * allocates for the test itself goes on working, and a sanitizer's allocator may lie below. It is loaded like any
 * library (ctypes). Calls of objects loaded after allocfault_arm are not seen.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define CALLER __builtin_return_address(0)

static atomic_int armed;
static atomic_long calls, hits;
static long nth;
static int sticky;
static char place[512]; /* of the first hit */

static void note_place(const char *what, void *caller)
{
    Dl_info info;
    if (!dladdr(caller, &info) || !info.dli_fname)
        return;
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(place, sizeof place, "%s in %s+%#lx", what, slash ? slash + 1 : info.dli_fname,
             (unsigned long)((char *)caller - (char *)info.dli_fbase));
}

static int refused(const char *what, void *caller)
{
    if (!atomic_load(&armed))
        return 0;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (!nth || (sticky ? n < nth : n != nth))
        return 0;
    if (!atomic_fetch_add(&hits, 1))
        note_place(what, caller);
    errno = ENOMEM;
    return 1;
}

/* --- in place of the allocator -------------------------------------------------------------------------------------- */

static void *our_malloc(size_t n) { return refused("malloc", CALLER) ? NULL : malloc(n); }
static void *our_calloc(size_t n, size_t size) { return refused("calloc", CALLER) ? NULL : calloc(n, size); }
static void *our_realloc(void *p, size_t n) { return refused("realloc", CALLER) ? NULL : realloc(p, n); }

static int our_posix_memalign(void **out, size_t alignment, size_t n)
{
    return refused("posix_memalign", CALLER) ? ENOMEM : posix_memalign(out, alignment, n);
}

static void *our_aligned_alloc(size_t alignment, size_t n)
{
    return refused("aligned_alloc", CALLER) ? NULL : aligned_alloc(alignment, n);
}

static void *our_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return refused("mmap", CALLER) ? MAP_FAILED : mmap(at, n, protection, flags, fd, offset);
}

static void *our_mremap(void *old, size_t from, size_t to, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *at = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    return refused("mremap", CALLER) ? MAP_FAILED : mremap(old, from, to, flags, at);
}

static const struct { const char *name; void *function; } ours[] = {
    {"malloc", our_malloc}, {"calloc", our_calloc}, {"realloc", our_realloc},
    {"posix_memalign", our_posix_memalign}, {"aligned_alloc", our_aligned_alloc},
    {"mmap", our_mmap}, {"mmap64", our_mmap}, {"mremap", our_mremap},
};

/* --- the tables ------------------------------------------------------------------------------------------------------- */

static void patch(void **slot, void *function)
{
    uintptr_t page = sysconf(_SC_PAGESIZE);
    /* Read-only after the object was linked. */
    if (mprotect((void *)((uintptr_t)slot & ~(page - 1)), page, PROT_READ | PROT_WRITE))
        abort();
    *slot = function;
}

static void patch_all(uintptr_t base, const ElfW(Rela) *rela, size_t bytes, const ElfW(Sym) *symbols, const char *names)
{
    for (size_t i = 0; i < bytes / sizeof *rela; i++) {
        const char *name = names + symbols[ELF64_R_SYM(rela[i].r_info)].st_name;
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            if (!strcmp(name, ours[k].name))
                patch((void **)(base + rela[i].r_offset), ours[k].function);
    }
}

static int patch_object(struct dl_phdr_info *info, size_t size, void *wanted)
{
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t symbols = 0, names = 0, plt = 0, rela = 0;
    size_t plt_bytes = 0, rela_bytes = 0;
    (void)size;
    if (!strstr(info->dlpi_name, wanted))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
        switch (dynamic->d_tag) {
        case DT_SYMTAB: symbols = dynamic->d_un.d_ptr; break;
        case DT_STRTAB: names = dynamic->d_un.d_ptr; break;
        case DT_JMPREL: plt = dynamic->d_un.d_ptr; break;
        case DT_PLTRELSZ: plt_bytes = dynamic->d_un.d_val; break;
        case DT_RELA: rela = dynamic->d_un.d_ptr; break;
        case DT_RELASZ: rela_bytes = dynamic->d_un.d_val; break;
        }
    patch_all(info->dlpi_addr, (const void *)plt, plt_bytes, (const void *)symbols, (const void *)names);
    patch_all(info->dlpi_addr, (const void *)rela, rela_bytes, (const void *)symbols, (const void *)names);
    return 0;
}

/* --- control ---------------------------------------------------------------------------------------------------------- */

/* Counts the calls of objects whose path contains `object`, and fails the one that is `which`, from 1 on; 0 only counts. */
EXPORT void allocfault_arm(long which, int from_then_on, const char *object)
{
    atomic_store(&armed, 0);
    dl_iterate_phdr(patch_object, (void *)object);
    nth = which;
    sticky = from_then_on;
    place[0] = 0;
    atomic_store(&calls, 0);
    atomic_store(&hits, 0);
    atomic_store(&armed, 1);
}

EXPORT void allocfault_disarm(void) { atomic_store(&armed, 0); }
EXPORT long allocfault_calls(void) { return atomic_load(&calls); }
EXPORT long allocfault_hits(void) { return atomic_load(&hits); }
EXPORT const char *allocfault_place(void) { return place; }
