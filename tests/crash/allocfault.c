/* allocfault: an LD_PRELOAD library that fails the N-th allocation of a process, once or from then on.
 *
 * It counts the calls made by shared objects whose path contains one string, so that what CPython allocates for the
 * test itself goes on working. With the empty string it counts every call; then PYTHONMALLOC=malloc makes CPython's
 * small objects count too.
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

#define EXPORT __attribute__((visibility("default")))
#define MAX_OBJECTS 128
#define EARLY_BYTES 4096

static struct { uintptr_t from, to; } objects[MAX_OBJECTS];
static int n_objects, everyone;
static atomic_int armed;
static atomic_long calls, hits;
static long nth;
static int sticky;
static char place[512];

/* --- which calls count -------------------------------------------------------------------------------------------- */

static int add_object(struct dl_phdr_info *info, size_t size, void *name)
{
    uintptr_t from = UINTPTR_MAX, to = 0;
    (void)size;
    if (n_objects == MAX_OBJECTS || !strstr(info->dlpi_name, name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD)
            continue;
        from = at < from ? at : from;
        to = at + p->p_memsz > to ? at + p->p_memsz : to;
    }
    objects[n_objects].from = from;
    objects[n_objects].to = to;
    n_objects++;
    return 0;
}

static int counted(uintptr_t caller)
{
    for (int i = 0; i < n_objects; i++)
        if (caller >= objects[i].from && caller < objects[i].to)
            return 1;
    return everyone;
}

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
    if (!atomic_load_explicit(&armed, memory_order_relaxed) || !counted((uintptr_t)caller))
        return 0;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (!nth || (sticky ? n < nth : n != nth))
        return 0;
    if (!atomic_fetch_add(&hits, 1))
        note_place(what, caller);
    errno = ENOMEM;
    return 1;
}

/* --- control ------------------------------------------------------------------------------------------------------ */

/* nth: from 1 on; 0 only counts. */
EXPORT void allocfault_arm(long which, int from_then_on, const char *object)
{
    atomic_store(&armed, 0);
    n_objects = 0;
    everyone = !*object;
    if (!everyone)
        dl_iterate_phdr(add_object, (void *)object);
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

/* --- the calls ---------------------------------------------------------------------------------------------------- */

/* dlsym itself may allocate: that is served from here, and never freed. */
static _Alignas(64) char early[EARLY_BYTES];
static size_t early_used;
static __thread int resolving;

static void *early_alloc(size_t n)
{
    size_t at = early_used;
    early_used += (n + 63) & ~(size_t)63;
    if (early_used > sizeof early)
        abort();
    return early + at;
}

static int is_early(const void *p) { return (const char *)p >= early && (const char *)p < early + sizeof early; }

static void *next(const char *name)
{
    resolving = 1;
    void *found = dlsym(RTLD_NEXT, name);
    resolving = 0;
    if (!found)
        abort();
    return found;
}

#define NEXT(name)                    \
    static __typeof__(&name) real;    \
    if (!real)                        \
        real = (__typeof__(&name))next(#name);

#define CALLER __builtin_return_address(0)

EXPORT void *malloc(size_t n)
{
    if (resolving)
        return early_alloc(n);
    NEXT(malloc)
    return refused("malloc", CALLER) ? NULL : real(n);
}

EXPORT void *calloc(size_t n, size_t size)
{
    if (resolving)
        return early_alloc(n * size);
    NEXT(calloc)
    return refused("calloc", CALLER) ? NULL : real(n, size);
}

EXPORT void *realloc(void *p, size_t n)
{
    NEXT(realloc)
    return refused("realloc", CALLER) ? NULL : real(p, n);
}

EXPORT void free(void *p)
{
    if (is_early(p))
        return;
    NEXT(free)
    real(p);
}

EXPORT int posix_memalign(void **out, size_t alignment, size_t n)
{
    NEXT(posix_memalign)
    return refused("posix_memalign", CALLER) ? ENOMEM : real(out, alignment, n);
}

EXPORT void *aligned_alloc(size_t alignment, size_t n)
{
    NEXT(aligned_alloc)
    return refused("aligned_alloc", CALLER) ? NULL : real(alignment, n);
}

EXPORT void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap)
    return refused("mmap", CALLER) ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}

EXPORT void *mmap64(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    NEXT(mmap64)
    return refused("mmap", CALLER) ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}

EXPORT void *mremap(void *old, size_t from, size_t to, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *at = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    NEXT(mremap)
    return refused("mremap", CALLER) ? MAP_FAILED : real(old, from, to, flags, at);
}
