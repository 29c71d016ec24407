import os

from libc.errno cimport EINVAL, ENOENT, EOPNOTSUPP
from libc.stddef cimport size_t
from libc.string cimport memcpy, memset

from lsmkv_ext.port.coding cimport get_u64, put_u64
from lsmkv_ext.port.file cimport (
    OPEN_CREATE,
    OPEN_READ,
    OPEN_WRITE,
    file_allocate,
    file_close,
    file_open,
    file_pread,
    file_pwrite,
)
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.status cimport Status, fail_io, raise_status, status_clear

cdef extern from "<sys/mman.h>" nogil:
    void* mmap(void* addr, size_t n, int prot, int flags, int fd, long offset)
    int munmap(void* addr, size_t n)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED

NAME = "SYNCED"             # beside the logs

cdef enum:
    PAGE = 4096
    SLOT = 32               # number, offset, count, checksum
    SLOT_APART = 64
    USED = SLOT_APART + SLOT


cdef inline uint64_t slot_checksum(const char* slot) noexcept nogil:
    return xxh3(slot, SLOT - 8, <uint64_t>0x73796E6365646E6F)


cdef inline bint slot_is_good(const char* slot) noexcept nogil:
    return get_u64(slot + 16) != 0 and get_u64(slot + 24) == slot_checksum(slot)


cdef const char* newest_slot(const char* page) noexcept nogil:
    """The good slot with the larger count, or NULL."""
    cdef const char* best = NULL
    cdef const char* slot
    cdef int i
    for i in range(2):
        slot = page + i * SLOT_APART
        if slot_is_good(slot) and (best == NULL or get_u64(slot + 16) > get_u64(best + 16)):
            best = slot
    return best


cdef void watermark_store(WatermarkC* watermark, uint64_t number, uint64_t synced) noexcept nogil:
    cdef char slot[SLOT]
    watermark.count += 1
    put_u64(slot, number)
    put_u64(slot + 8, synced)
    put_u64(slot + 16, watermark.count)
    put_u64(slot + 24, slot_checksum(slot))
    memcpy(watermark.page + (watermark.count % 2) * SLOT_APART, slot, SLOT)


cdef int make_room(int fd, char* page) noexcept nogil:
    """The file's first page as it is, all of it allocated: a store into its mapping never meets a full disk. 0 or an errno."""
    cdef size_t got = 0
    cdef int err = file_pread(fd, page, USED, 0, &got)
    if err == 0:
        err = file_allocate(fd, 0, PAGE)
    if err == 0 or err == EOPNOTSUPP or err == EINVAL:
        err = file_pwrite(fd, page, PAGE, 0)
    return err


cdef class SyncWatermark:
    """The file at `path`, made where it is missing; what it says is kept until the next watermark."""

    def __cinit__(self, path):
        cdef bytes encoded = os.fsencode(path)
        cdef char page[PAGE]
        cdef const char* newest
        cdef void* mapped = MAP_FAILED
        cdef Status st
        cdef int err, fd
        self.path = os.fsdecode(path)
        memset(page, 0, PAGE)
        status_clear(&st)
        err = file_open(encoded, OPEN_WRITE, &fd)
        if err == ENOENT:
            err = file_open(encoded, OPEN_CREATE, &fd)
        if err == 0:
            err = make_room(fd, page)
            if err == 0:
                mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            file_close(fd)
        if err:
            fail_io(&st, b"watermark of what is synced", err)
            raise_status(&st, self.path)
        newest = newest_slot(page)
        self.c.count = 0 if newest == NULL else get_u64(newest + 16)
        # Where the file system cannot map, logs keep the watermark in their heads.
        self.c.page = NULL if mapped == MAP_FAILED else <char*>mapped

    def close(self):
        """Unmaps the page. No log may have the watermark any more."""
        if self.c.page != NULL:
            munmap(self.c.page, PAGE)
            self.c.page = NULL

    def __dealloc__(self):
        if self.c.page != NULL:
            munmap(self.c.page, PAGE)


cdef int load(path, char* page) except -1:
    """The file's page, with zeros where it has no bytes or is not there."""
    cdef bytes encoded = os.fsencode(path)
    cdef size_t got = 0
    cdef Status st
    cdef int fd
    cdef int err = file_open(encoded, OPEN_READ, &fd)
    memset(page, 0, PAGE)
    if err == ENOENT:
        return 0
    if err == 0:
        err = file_pread(fd, page, PAGE, 0, &got)
        file_close(fd)
    if err:
        status_clear(&st)
        fail_io(&st, b"watermark of what is synced", err)
        raise_status(&st, path)
    return 0


def read_watermark(path):
    """(number of a log, its known-synced offset), or None where there is no good watermark."""
    cdef char page[PAGE]
    cdef const char* newest
    load(path, page)
    newest = newest_slot(page)
    return None if newest == NULL else (get_u64(newest), get_u64(newest + 8))


def read_watermark_beside(log_path):
    return read_watermark(os.path.join(os.path.dirname(log_path), NAME))


def damaged_places(path):
    """Offsets of bytes that no store could have left there. Opening lives with them: they only make the watermark lag."""
    cdef char page[PAGE]
    cdef int i, at
    load(path, page)
    for i in range(2):
        at = i * SLOT_APART
        if slot_is_good(page + at):
            memset(page + at, 0, SLOT)
    return [i for i in range(0, PAGE, 8) if get_u64(page + i) != 0]
