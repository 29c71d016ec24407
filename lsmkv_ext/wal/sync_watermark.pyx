import os

from libc.errno cimport EINVAL, ENOENT, EOPNOTSUPP
from libc.string cimport memcpy, memset

from lsmkv_ext.port.coding cimport get_u64
from lsmkv_ext.port.file cimport (
    ERR_NOT_REGULAR,
    OPEN_CREATE,
    OPEN_READ,
    OPEN_WRITE,
    file_allocate,
    file_close,
    file_open,
    file_pread,
    file_pwrite,
)
from lsmkv_ext.port.pages cimport MAP_FAILED, MAP_SHARED, PAGE, PROT_READ, PROT_WRITE, mmap, munmap
from lsmkv_ext.port.status cimport Status, fail_corrupt, fail_io, raise_status, status_clear
from lsmkv_ext.port.sync_slots cimport SlotLayout, SyncSlot, slot_decode, slot_encode, slot_offset, slots_newest

from lsmkv_ext.port.wall_clock cimport CLOCK_END, clock_erase

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.port.wall_clock import stored_clock

NAME = "SYNCED"             # beside the logs

cdef enum:
    SLOT_B = 64             # slot A is at 0
    SLOT_SIZE = 32
    USED = CLOCK_END


cdef SlotLayout layout() noexcept nogil:
    cdef SlotLayout out
    out.a = 0
    out.b = SLOT_B
    out.number_at = 0
    out.synced_at = 8
    out.count_at = 16
    out.checksum_at = SLOT_SIZE - 8
    out.seed = <uint64_t>0x73796E6365646E6F
    return out


cdef void watermark_store(WatermarkC* watermark, uint64_t number, uint64_t synced) noexcept nogil:
    cdef SlotLayout slots = layout()
    cdef SyncSlot slot
    cdef char encoded[SLOT_SIZE]
    watermark.count += 1
    slot.number = number
    slot.synced = synced
    slot.count = watermark.count
    slot_encode(&slots, &slot, encoded)
    memcpy(watermark.page + slot_offset(&slots, slot.count), encoded, SLOT_SIZE)


cdef int make_room(int fd, char* page) noexcept nogil:
    """Reads and allocates the first page of the file: a store into its mapping then needs no disk space. 0 or an errno."""
    cdef size_t got = 0
    cdef int err = file_pread(fd, page, USED, 0, &got)
    if err == 0:
        err = file_allocate(fd, 0, PAGE)
    if err == 0 or err == EOPNOTSUPP or err == EINVAL:
        err = file_pwrite(fd, page, PAGE, 0)
    return err


cdef int fail_open(Status* st, int err) noexcept nogil:
    if err == ERR_NOT_REGULAR:
        return fail_corrupt(st, b"not a regular file", 0, 0)
    return fail_io(st, b"sync watermark", err)


cdef class SyncWatermark:
    """The file at `path`, mapped; created if it is missing. Opening it does not change the watermark."""

    def __cinit__(self, path):
        cdef bytes encoded = os.fsencode(path)
        cdef char page[PAGE]
        cdef SlotLayout slots = layout()
        cdef SyncSlot newest
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
            fail_open(&st, err)
            raise_status(&st, self.path)
        if slots_newest(&slots, page, &newest):
            self.c.count = newest.count
        self.c.page = NULL if mapped == MAP_FAILED else <char*>mapped

    def close(self):
        """Unmap the page. The watermark must be attached to no log."""
        if self.c.page != NULL:
            munmap(self.c.page, PAGE)
            self.c.page = NULL

    def __dealloc__(self):
        if self.c.page != NULL:
            munmap(self.c.page, PAGE)


cdef int load(path, char* page) except -1:
    """Reads the file's page; zeros where the file ends or is missing."""
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
        fail_open(&st, err)
        raise_status(&st, path)
    return 0


def read_watermark(path):
    """Return (log number, known-synced offset), or None if there is no good watermark."""
    cdef SlotLayout slots = layout()
    cdef SyncSlot newest
    cdef char page[PAGE]
    load(path, page)
    return (newest.number, newest.synced) if slots_newest(&slots, page, &newest) else None


def read_watermark_beside(log_path):
    """Return the watermark in the directory of a log; see read_watermark. What is not a regular file has none."""
    try:
        return read_watermark(os.path.join(os.path.dirname(log_path), NAME))
    except CorruptionError:
        return None


def read_clock(path):
    """Return the time stored for the clock of the database, in milliseconds since 1970; 0 if there is none."""
    cdef char page[PAGE]
    load(path, page)
    return stored_clock(page[:CLOCK_END])


def damaged_offsets(path):
    """Return the offsets of damaged bytes. Opening tolerates them: they only make the watermark lag."""
    cdef SlotLayout slots = layout()
    cdef SyncSlot slot
    cdef char page[PAGE]
    cdef int i
    load(path, page)
    for i in (0, SLOT_B):
        if slot_decode(&slots, page + i, &slot):
            memset(page + i, 0, SLOT_SIZE)
    clock_erase(page)
    return [i for i in range(0, PAGE, 8) if get_u64(page + i) != 0]
