/* iofault: an LD_PRELOAD library that watches the I/O calls of a process on the files under one root.
 *
 * It can log them (a trace that replay.py turns into crash states; reads are left out), fail the N-th one, cut it short,
 * or kill the process at it. Everything is set through the exported iofault_* functions (ctypes), or
 * at start through IOFAULT_ROOT, IOFAULT_TRACE and IOFAULT_ARM="mask,nth,action,errno,sticky[,match]".
 *
 * While a trace is on, one lock is held around each watched call, so the order of the records is the
 * order of the calls. Stores into shared file mappings make no call; before each record (and at each
 * iofault_mark) the pages of every watched mapping that changed are therefore written as STORE records.
 *
 * A descriptor is turned into a path by /proc/self/fd, so nothing has to be known about its past.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define PAGE 4096
#define MAX_MAPS 64

/* Also the bit numbers of the mask given to iofault_arm; trace.py has the same list. */
enum op {
    OP_OPEN, OP_READ, OP_WRITE, OP_PWRITE, OP_FSYNC, OP_FDATASYNC, OP_RENAME, OP_UNLINK, OP_FTRUNCATE,
    OP_FALLOCATE, OP_MMAP, OP_MSYNC, OP_MKDIR, OP_LINK, OP_RMDIR, OP_MUNMAP, OP_CLOSE, OP_STORE, OP_MARK
};
enum action { ACT_COUNT, ACT_FAIL, ACT_KILL, ACT_SHORT, ACT_KILL_AFTER, ACT_HOLD };
enum verdict { GO, FAIL, SHORT, DIE_AFTER };
enum { FLAG_INJECTED = 1, FLAG_CREATED = 2, FLAG_DIRECTORY = 4 };

struct record {
    uint32_t magic;
    uint16_t op, flags;
    uint32_t tid;
    int32_t err;
    int64_t result;
    uint64_t inode;
    int64_t offset, length;
    uint16_t path_len, path2_len;
    uint32_t data_len;
} __attribute__((packed));

struct mapping {
    char *addr;
    size_t len;
    uint64_t inode;
    int64_t offset;
    char *shadow;
    char path[PATH_MAX];
};

static char root[PATH_MAX];
static size_t root_len;
static int trace_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping maps[MAX_MAPS];

static struct {
    uint32_t mask;
    int action, err, sticky;
    long nth;
    char match[256];
} arm;
static long calls, hits, low; /* low: calls on descriptors 0 to 2, which are the program's standard streams */

#define REAL(name) \
    ({ static __typeof__(&name) f; if (!f) f = (__typeof__(&name))dlsym(RTLD_NEXT, #name); f; })

/* ---- paths ---------------------------------------------------------------------------------- */

static const char *inside(const char *path) {
    if (!root_len || strncmp(path, root, root_len)) return NULL;
    if (path[root_len] == 0) return path + root_len;
    return path[root_len] == '/' ? path + root_len + 1 : NULL;
}

/* The path under the root of an open descriptor, or NULL. */
static const char *of_fd(int fd, char *buf) {
    char link[64];
    if (!root_len || fd < 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, buf, PATH_MAX - 1);
    if (n < 0) return NULL;
    buf[n] = 0;
    char *deleted = n > 10 ? buf + n - 10 : buf;
    if (!strcmp(deleted, " (deleted)")) *deleted = 0;
    return inside(buf);
}

/* The path under the root of a name relative to a directory descriptor, or NULL. Does not follow links. */
static const char *of_name(int dir, const char *name, char *buf) {
    if (!root_len || !name) return NULL;
    if (name[0] == '/') {
        snprintf(buf, PATH_MAX, "%s", name);
    } else {
        char base[PATH_MAX];
        if (dir == AT_FDCWD) {
            if (!getcwd(base, sizeof base)) return NULL;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
            ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, base, sizeof base - 1);
            if (n < 0) return NULL;
            base[n] = 0;
        }
        if ((size_t)snprintf(buf, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return NULL;
    }
    return inside(buf);
}

static uint64_t inode_of(int fd, int *directory) {
    struct stat st;
    if (fstat(fd, &st)) return 0;
    if (directory) *directory = S_ISDIR(st.st_mode);
    return st.st_ino;
}

static uint64_t inode_at(int dir, const char *name) {
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? 0 : st.st_ino;
}

/* ---- the trace ------------------------------------------------------------------------------ */

static void emit_bytes(const void *data, size_t n) {
    const char *p = data;
    while (n) {
        ssize_t w = syscall(SYS_write, trace_fd, p, n);
        if (w < 0) {
            if (errno == EINTR) continue;
            static const char message[] = "iofault: cannot write the trace\n";
            syscall(SYS_write, 2, message, sizeof message - 1);
            abort();
        }
        p += w;
        n -= (size_t)w;
    }
}

static void emit(int op, int flags, int64_t result, int err, uint64_t inode, int64_t offset, int64_t length,
                 const char *path, const char *path2, const void *data, size_t data_len) {
    struct record r = {0x31464f49, (uint16_t)op, (uint16_t)flags, (uint32_t)syscall(SYS_gettid), err, result,
                       inode, offset, length, (uint16_t)strlen(path), (uint16_t)strlen(path2),
                       (uint32_t)data_len};
    emit_bytes(&r, sizeof r);
    emit_bytes(path, r.path_len);
    emit_bytes(path2, r.path2_len);
    emit_bytes(data, data_len);
}

/* Writes the pages that changed since the last look; the shadow then equals what was written. */
static void emit_stores(struct mapping *m) {
    size_t at = 0;
    while (at < m->len) {
        size_t n = m->len - at < PAGE ? m->len - at : PAGE;
        if (memcmp(m->addr + at, m->shadow + at, n)) {
            memcpy(m->shadow + at, m->addr + at, n);
            emit(OP_STORE, 0, (int64_t)n, 0, m->inode, m->offset + (int64_t)at, (int64_t)n, m->path, "",
                 m->shadow + at, n);
        }
        at += n;
    }
}

static void emit_all_stores(void) {
    for (int i = 0; i < MAX_MAPS; i++)
        if (maps[i].addr) emit_stores(&maps[i]);
}

static void watch_mapping(void *addr, size_t len, int fd, int64_t offset, const char *path) {
    for (int i = 0; i < MAX_MAPS; i++) {
        struct mapping *m = &maps[i];
        if (m->addr) continue;
        m->shadow = REAL(mmap)(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m->shadow == MAP_FAILED) abort();
        for (size_t at = 0; at < len;) {
            ssize_t n = syscall(SYS_pread64, fd, m->shadow + at, len - at, offset + (int64_t)at);
            if (n <= 0) break;
            at += (size_t)n;
        }
        m->len = len;
        m->inode = inode_of(fd, NULL);
        m->offset = offset;
        snprintf(m->path, sizeof m->path, "%s", path);
        m->addr = addr;
        return;
    }
    abort();
}

static void forget_mapping(void *addr) {
    for (int i = 0; i < MAX_MAPS; i++)
        if (maps[i].addr == addr) {
            emit_stores(&maps[i]);
            REAL(munmap)(maps[i].shadow, maps[i].len);
            memset(&maps[i], 0, sizeof maps[i]);
        }
}

/* ---- one watched call: begin -> the real call -> finish -------------------------------------- */

struct call {
    int op, tracing, verdict, flags;
    uint64_t inode;
    const char *path, *path2;
    char buf[PATH_MAX], buf2[PATH_MAX];
};

static int decide(int op, const char *path) {
    if (!(arm.mask >> op & 1) || (arm.match[0] && !strstr(path, arm.match))) return GO;
    long n = __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
    if (n < arm.nth || (n > arm.nth && !arm.sticky) || arm.action == ACT_COUNT) return GO;
    __atomic_add_fetch(&hits, 1, __ATOMIC_SEQ_CST);
    switch (arm.action) {
    case ACT_KILL: syscall(SYS_kill, getpid(), SIGKILL); pause(); return GO;
    case ACT_KILL_AFTER: return DIE_AFTER;
    case ACT_HOLD:
        while (__atomic_load_n(&arm.action, __ATOMIC_SEQ_CST) == ACT_HOLD) usleep(500);
        return GO;
    case ACT_SHORT: return op == OP_WRITE || op == OP_PWRITE || op == OP_READ ? SHORT : GO;
    default: return FAIL;
    }
}

/* Takes the lock if there is a trace. Another thread may end the trace until the lock is held. */
static int take_trace(void) {
    if (__atomic_load_n(&trace_fd, __ATOMIC_RELAXED) < 0) return 0;
    pthread_mutex_lock(&lock);
    if (trace_fd >= 0) return 1;
    pthread_mutex_unlock(&lock);
    return 0;
}

/* Starts a watched call; c->path is set. With a FAIL verdict errno holds the error to report. */
static int begin(struct call *c, int op) {
    c->op = op;
    c->tracing = take_trace();
    if (c->tracing) emit_all_stores();
    c->verdict = decide(op, c->path);
    if (c->verdict == FAIL || c->verdict == SHORT) c->flags |= FLAG_INJECTED;
    if (c->verdict == FAIL) errno = arm.err;
    return c->verdict;
}

static void finish(struct call *c, int64_t result, int err, int64_t offset, int64_t length, const void *data,
                   size_t data_len) {
    if (c->tracing && c->op == OP_READ) {
        pthread_mutex_unlock(&lock);
    } else if (c->tracing) {
        emit(c->op, c->flags, result, err, c->inode, offset, length, c->path, c->path2 ? c->path2 : "", data,
             data_len);
        pthread_mutex_unlock(&lock);
    }
    if (c->verdict == DIE_AFTER) {
        syscall(SYS_kill, getpid(), SIGKILL);
        pause();
    }
}

static int watch_fd(struct call *c, int fd) {
    int directory = 0;
    int saved = errno;
    c->path = of_fd(fd, c->buf);
    c->path2 = NULL;
    c->flags = 0;
    if (c->path) {
        if (fd <= 2) __atomic_add_fetch(&low, 1, __ATOMIC_SEQ_CST);
        c->inode = inode_of(fd, &directory);
        c->flags = directory ? FLAG_DIRECTORY : 0;
    }
    errno = saved;
    return c->path != NULL;
}

static int watch_name(struct call *c, int dir, const char *name) {
    int saved = errno;
    c->path = of_name(dir, name, c->buf);
    c->path2 = NULL;
    c->flags = 0;
    c->inode = c->path ? inode_at(dir, name) : 0;
    errno = saved;
    return c->path != NULL;
}

#define RETURN(c, result, offset, length, data, data_len)                                             \
    do {                                                                                              \
        int err_ = errno;                                                                             \
        __typeof__(result) res_ = (result);                                                           \
        finish(&(c), (int64_t)res_, (int64_t)res_ < 0 ? err_ : 0, offset, length, data, data_len);    \
        errno = err_;                                                                                 \
        return res_;                                                                                  \
    } while (0)

/* ---- the interposed calls -------------------------------------------------------------------- */

static int open_any(int dir, const char *name, int flags, mode_t mode) {
    struct call c;
    if (!watch_name(&c, dir, name)) return (int)syscall(SYS_openat, dir, name, flags, mode);
    int existed = c.inode != 0;
    int fd = -1;
    if (begin(&c, OP_OPEN) != FAIL) {
        fd = (int)syscall(SYS_openat, dir, name, flags, mode);
        if (fd >= 0) {
            int saved = errno, directory = 0;
            c.inode = inode_of(fd, &directory);
            if (directory) c.flags |= FLAG_DIRECTORY;
            if (!existed) c.flags |= FLAG_CREATED;
            errno = saved;
        }
    }
    RETURN(c, fd, 0, flags, NULL, 0);
}

#define MODE_ARG(flags, mode)                                     \
    mode_t mode = 0;                                              \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                      \
        va_list ap;                                               \
        va_start(ap, flags);                                      \
        mode = va_arg(ap, mode_t);                                \
        va_end(ap);                                               \
    }

EXPORT int open(const char *name, int flags, ...) { MODE_ARG(flags, mode) return open_any(AT_FDCWD, name, flags, mode); }
EXPORT int open64(const char *name, int flags, ...) { MODE_ARG(flags, mode) return open_any(AT_FDCWD, name, flags, mode); }
EXPORT int openat(int dir, const char *name, int flags, ...) { MODE_ARG(flags, mode) return open_any(dir, name, flags, mode); }
EXPORT int openat64(int dir, const char *name, int flags, ...) { MODE_ARG(flags, mode) return open_any(dir, name, flags, mode); }
EXPORT int __open_2(const char *name, int flags) { return open_any(AT_FDCWD, name, flags, 0); }
EXPORT int __open64_2(const char *name, int flags) { return open_any(AT_FDCWD, name, flags, 0); }
EXPORT int __openat_2(int dir, const char *name, int flags) { return open_any(dir, name, flags, 0); }
EXPORT int __openat64_2(int dir, const char *name, int flags) { return open_any(dir, name, flags, 0); }
EXPORT int creat(const char *name, mode_t mode) { return open_any(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
EXPORT int creat64(const char *name, mode_t mode) { return creat(name, mode); }

static ssize_t read_any(int fd, void *buf, size_t n, int64_t offset) {
    struct call c;
    if (!watch_fd(&c, fd))
        return offset < 0 ? syscall(SYS_read, fd, buf, n) : syscall(SYS_pread64, fd, buf, n, offset);
    ssize_t got = -1;
    int verdict = begin(&c, OP_READ);
    if (verdict == SHORT && n > 1) n /= 2;
    if (verdict != FAIL)
        got = offset < 0 ? syscall(SYS_read, fd, buf, n) : syscall(SYS_pread64, fd, buf, n, offset);
    RETURN(c, got, offset, (int64_t)n, NULL, 0);
}

EXPORT ssize_t read(int fd, void *buf, size_t n) { return read_any(fd, buf, n, -1); }
EXPORT ssize_t pread(int fd, void *buf, size_t n, off_t at) { return read_any(fd, buf, n, at); }
EXPORT ssize_t pread64(int fd, void *buf, size_t n, off64_t at) { return read_any(fd, buf, n, at); }
EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room) { (void)room; return read_any(fd, buf, n, -1); }
EXPORT ssize_t __pread_chk(int fd, void *buf, size_t n, off_t at, size_t room) { (void)room; return read_any(fd, buf, n, at); }
EXPORT ssize_t __pread64_chk(int fd, void *buf, size_t n, off64_t at, size_t room) { (void)room; return read_any(fd, buf, n, at); }

/* A short read ends within the first piece. */
static ssize_t readv_any(int fd, const struct iovec *v, int count, int64_t at, int flags) {
    struct call c;
    struct iovec half;
    if (!watch_fd(&c, fd)) return syscall(SYS_preadv2, fd, v, count, at, 0L, flags);
    ssize_t got = -1;
    int verdict = begin(&c, OP_READ);
    if (verdict == SHORT) {
        while (count > 1 && !v->iov_len) v++, count--;
        half.iov_base = v->iov_base;
        half.iov_len = v->iov_len > 1 ? v->iov_len / 2 : v->iov_len;
        v = &half;
        count = 1;
    }
    if (verdict != FAIL) got = syscall(SYS_preadv2, fd, v, count, at, 0L, flags);
    RETURN(c, got, at, 0, NULL, 0);
}

EXPORT ssize_t preadv(int fd, const struct iovec *v, int count, off_t at) { return readv_any(fd, v, count, at, 0); }
EXPORT ssize_t preadv64(int fd, const struct iovec *v, int count, off64_t at) { return readv_any(fd, v, count, at, 0); }
EXPORT ssize_t preadv2(int fd, const struct iovec *v, int count, off_t at, int flags) { return readv_any(fd, v, count, at, flags); }
EXPORT ssize_t preadv64v2(int fd, const struct iovec *v, int count, off64_t at, int flags) { return readv_any(fd, v, count, at, flags); }

/* Where a plain write lands: the end for O_APPEND, else the descriptor's position. */
static int64_t position(int fd) {
    if (fcntl(fd, F_GETFL) & O_APPEND) {
        struct stat st;
        return fstat(fd, &st) ? 0 : st.st_size;
    }
    return lseek(fd, 0, SEEK_CUR);
}

static ssize_t write_any(int op, int fd, const void *buf, size_t n, int64_t offset) {
    struct call c;
    if (!watch_fd(&c, fd))
        return op == OP_WRITE ? syscall(SYS_write, fd, buf, n) : syscall(SYS_pwrite64, fd, buf, n, offset);
    ssize_t done = -1;
    int verdict = begin(&c, op);
    int saved = errno;
    if (op == OP_WRITE) offset = position(fd);
    errno = saved;
    if (verdict == SHORT && n > 1) n /= 2;
    if (verdict != FAIL)
        done = op == OP_WRITE ? syscall(SYS_write, fd, buf, n) : syscall(SYS_pwrite64, fd, buf, n, offset);
    RETURN(c, done, offset, (int64_t)n, buf, done > 0 ? (size_t)done : 0);
}

EXPORT ssize_t write(int fd, const void *buf, size_t n) { return write_any(OP_WRITE, fd, buf, n, 0); }
EXPORT ssize_t pwrite(int fd, const void *buf, size_t n, off_t at) { return write_any(OP_PWRITE, fd, buf, n, at); }
EXPORT ssize_t pwrite64(int fd, const void *buf, size_t n, off64_t at) { return write_any(OP_PWRITE, fd, buf, n, at); }

/* A vector is written from one copy: a trace needs the bytes in one piece anyway. */
static ssize_t writev_any(int op, int fd, const struct iovec *v, int count, int64_t offset) {
    size_t total = 0;
    for (int i = 0; i < count; i++) total += v[i].iov_len;
    char *copy = malloc(total ? total : 1);
    if (!copy) { errno = ENOMEM; return -1; }
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        memcpy(copy + at, v[i].iov_base, v[i].iov_len);
        at += v[i].iov_len;
    }
    ssize_t done = write_any(op, fd, copy, total, offset);
    int saved = errno;
    free(copy);
    errno = saved;
    return done;
}

EXPORT ssize_t writev(int fd, const struct iovec *v, int count) { return writev_any(OP_WRITE, fd, v, count, 0); }
EXPORT ssize_t pwritev(int fd, const struct iovec *v, int count, off_t at) { return writev_any(OP_PWRITE, fd, v, count, at); }
EXPORT ssize_t pwritev64(int fd, const struct iovec *v, int count, off64_t at) { return writev_any(OP_PWRITE, fd, v, count, at); }

/* A copy inside the kernel would hide its bytes from the trace; callers fall back to read and write. */
EXPORT ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t n, unsigned flags) {
    char buf[PATH_MAX];
    if (of_fd(out, buf)) { errno = ENOSYS; return -1; }
    return syscall(SYS_copy_file_range, in, in_at, out, out_at, n, flags);
}

EXPORT ssize_t sendfile(int out, int in, off_t *at, size_t n) {
    char buf[PATH_MAX];
    if (of_fd(out, buf)) { errno = EINVAL; return -1; }
    return syscall(SYS_sendfile, out, in, at, n);
}
EXPORT ssize_t sendfile64(int out, int in, off64_t *at, size_t n) { return sendfile(out, in, (off_t *)at, n); }

static int sync_any(int op, int fd) {
    long number = op == OP_FSYNC ? SYS_fsync : SYS_fdatasync;
    struct call c;
    if (!watch_fd(&c, fd)) return (int)syscall(number, fd);
    int result = -1;
    if (begin(&c, op) != FAIL) result = (int)syscall(number, fd);
    RETURN(c, result, fd, 0, NULL, 0);
}

EXPORT int fsync(int fd) { return sync_any(OP_FSYNC, fd); }
EXPORT int fdatasync(int fd) { return sync_any(OP_FDATASYNC, fd); }

static int rename_any(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    struct call c;
    int watched = watch_name(&c, from_dir, from);
    if (watched) c.path2 = of_name(to_dir, to, c.buf2);
    if (!watched) return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    int result = -1;
    if (begin(&c, OP_RENAME) != FAIL) result = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    RETURN(c, result, 0, flags, NULL, 0);
}

EXPORT int rename(const char *from, const char *to) { return rename_any(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int renameat(int fd, const char *from, int td, const char *to) { return rename_any(fd, from, td, to, 0); }
EXPORT int renameat2(int fd, const char *from, int td, const char *to, unsigned flags) { return rename_any(fd, from, td, to, flags); }

static int unlink_any(int dir, const char *name, int flags) {
    struct call c;
    if (!watch_name(&c, dir, name)) return (int)syscall(SYS_unlinkat, dir, name, flags);
    int result = -1;
    if (begin(&c, flags & AT_REMOVEDIR ? OP_RMDIR : OP_UNLINK) != FAIL)
        result = (int)syscall(SYS_unlinkat, dir, name, flags);
    RETURN(c, result, 0, 0, NULL, 0);
}

EXPORT int unlink(const char *name) { return unlink_any(AT_FDCWD, name, 0); }
EXPORT int unlinkat(int dir, const char *name, int flags) { return unlink_any(dir, name, flags); }
EXPORT int rmdir(const char *name) { return unlink_any(AT_FDCWD, name, AT_REMOVEDIR); }
EXPORT int remove(const char *name) {
    int result = unlink(name);
    return result && errno == EISDIR ? rmdir(name) : result;
}

static int mkdir_any(int dir, const char *name, mode_t mode) {
    struct call c;
    if (!watch_name(&c, dir, name)) return (int)syscall(SYS_mkdirat, dir, name, mode);
    int result = -1;
    if (begin(&c, OP_MKDIR) != FAIL) result = (int)syscall(SYS_mkdirat, dir, name, mode);
    RETURN(c, result, 0, mode, NULL, 0);
}

EXPORT int mkdir(const char *name, mode_t mode) { return mkdir_any(AT_FDCWD, name, mode); }
EXPORT int mkdirat(int dir, const char *name, mode_t mode) { return mkdir_any(dir, name, mode); }

static int link_any(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    struct call c;
    if (!watch_name(&c, from_dir, from)) return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    c.path2 = of_name(to_dir, to, c.buf2);
    int result = -1;
    if (begin(&c, OP_LINK) != FAIL) result = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    RETURN(c, result, 0, 0, NULL, 0);
}

EXPORT int link(const char *from, const char *to) { return link_any(AT_FDCWD, from, AT_FDCWD, to, 0); }
EXPORT int linkat(int fd, const char *from, int td, const char *to, int flags) { return link_any(fd, from, td, to, flags); }

EXPORT int ftruncate(int fd, off_t size) {
    struct call c;
    if (!watch_fd(&c, fd)) return (int)syscall(SYS_ftruncate, fd, size);
    int result = -1;
    if (begin(&c, OP_FTRUNCATE) != FAIL) result = (int)syscall(SYS_ftruncate, fd, size);
    RETURN(c, result, 0, size, NULL, 0);
}
EXPORT int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

EXPORT int fallocate(int fd, int mode, off_t at, off_t n) {
    struct call c;
    if (!watch_fd(&c, fd)) return (int)syscall(SYS_fallocate, fd, mode, at, n);
    int result = -1;
    if (begin(&c, OP_FALLOCATE) != FAIL) result = (int)syscall(SYS_fallocate, fd, mode, at, n);
    RETURN(c, result, at, n, NULL, 0);
}
EXPORT int fallocate64(int fd, int mode, off64_t at, off64_t n) { return fallocate(fd, mode, at, n); }

/* Reports its error by value. */
EXPORT int posix_fallocate(int fd, off_t at, off_t n) {
    int saved = errno;
    int result = fallocate(fd, 0, at, n);
    int err = errno;
    errno = saved;
    if (result && err == EOPNOTSUPP) return REAL(posix_fallocate)(fd, at, n);
    return result ? err : 0;
}
EXPORT int posix_fallocate64(int fd, off64_t at, off64_t n) { return posix_fallocate(fd, at, n); }

EXPORT void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t at) {
    struct call c;
    int shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if ((flags & MAP_ANONYMOUS) || !watch_fd(&c, fd))
        return (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, at);
    void *result = MAP_FAILED;
    if (begin(&c, OP_MMAP) != FAIL) result = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, at);
    int saved = errno;
    if (result != MAP_FAILED && c.tracing && shared && (prot & PROT_WRITE)) watch_mapping(result, len, fd, at, c.path);
    finish(&c, result == MAP_FAILED ? -1 : 0, result == MAP_FAILED ? saved : 0, at, (int64_t)len, NULL, 0);
    errno = saved;
    return result;
}
EXPORT void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t at) { return mmap(addr, len, prot, flags, fd, at); }

EXPORT int munmap(void *addr, size_t len) {
    if (take_trace()) {
        int saved = errno;
        forget_mapping(addr);
        pthread_mutex_unlock(&lock);
        errno = saved;
    }
    return (int)syscall(SYS_munmap, addr, len);
}

static const struct mapping *mapping_at(const void *addr) {
    for (int i = 0; i < MAX_MAPS; i++)
        if (maps[i].addr && (char *)addr >= maps[i].addr && (char *)addr < maps[i].addr + maps[i].len) return &maps[i];
    return NULL;
}

EXPORT int msync(void *addr, size_t len, int flags) {
    const struct mapping *m = trace_fd >= 0 ? mapping_at(addr) : NULL;
    struct call c = {0};
    c.path = m ? m->path : "";
    c.inode = m ? m->inode : 0;
    if (!root_len) return (int)syscall(SYS_msync, addr, len, flags);
    int result = -1;
    int64_t offset = m ? m->offset + ((char *)addr - m->addr) : 0;
    if (begin(&c, OP_MSYNC) != FAIL) result = (int)syscall(SYS_msync, addr, len, flags);
    RETURN(c, result, offset, (int64_t)len, NULL, 0);
}

/* ---- what tests call -------------------------------------------------------------------------- */

EXPORT int iofault_root(const char *path) {
    root_len = 0;
    if (!path || !*path) return 0;
    if (!realpath(path, root)) return -1;
    root_len = strlen(root);
    return 0;
}

EXPORT int iofault_trace(const char *path) {
    pthread_mutex_lock(&lock);
    if (trace_fd >= 0) {
        emit_all_stores();
        syscall(SYS_close, trace_fd);
        trace_fd = -1;
        for (int i = 0; i < MAX_MAPS; i++)
            if (maps[i].addr) REAL(munmap)(maps[i].shadow, maps[i].len);
        memset(maps, 0, sizeof maps);
    }
    int ok = 0;
    if (path && *path) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
        trace_fd = fd;
        ok = fd < 0 ? -1 : 0;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

/* Puts a record of the test itself into the trace. */
EXPORT void iofault_mark(const char *data, uint32_t n) {
    if (!take_trace()) return;
    emit_all_stores();
    emit(OP_MARK, 0, 0, 0, 0, 0, 0, "", "", data, n);
    pthread_mutex_unlock(&lock);
}

EXPORT void iofault_arm(uint32_t mask, long nth, int action, int err, int sticky, const char *match) {
    arm.mask = 0;
    snprintf(arm.match, sizeof arm.match, "%s", match ? match : "");
    arm.nth = nth;
    arm.action = action;
    arm.err = err;
    arm.sticky = sticky;
    calls = hits = 0;
    __atomic_store_n(&arm.mask, mask, __ATOMIC_SEQ_CST);
}

EXPORT long iofault_calls(void) { return calls; }
EXPORT long iofault_hits(void) { return hits; }
EXPORT long iofault_low(void) { return low; }

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("IOFAULT_ROOT"), *trace = getenv("IOFAULT_TRACE"), *spec = getenv("IOFAULT_ARM");
    if (path && iofault_root(path)) { fprintf(stderr, "iofault: no such root: %s\n", path); _exit(97); }
    if (trace && iofault_trace(trace)) { fprintf(stderr, "iofault: cannot open trace: %s\n", trace); _exit(97); }
    if (spec) {
        unsigned mask;
        long nth;
        int action, err, sticky;
        char match[256] = "";
        if (sscanf(spec, "%u,%ld,%d,%d,%d,%255s", &mask, &nth, &action, &err, &sticky, match) < 5) {
            fprintf(stderr, "iofault: bad IOFAULT_ARM: %s\n", spec);
            _exit(97);
        }
        iofault_arm(mask, nth, action, err, sticky, match);
    }
}
