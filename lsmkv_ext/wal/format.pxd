# The bytes of a log, for its writer and its readers. Byte grids: docs/format.md, "Write-ahead log".
#
#   head page | record | record | ... | zeros
#
# A record is a header, a payload (the operations of a batch) and zeros up to a multiple of 8. The log's number seeds both
# checksums of a record, its offset also that of the header, so a stale or moved record fails its check.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport all_zero, get_u32, get_u64, put_u32, put_u64
from lsmkv_ext.port.status cimport ST_OK, Status, fail_corrupt, fail_format
from lsmkv_ext.port.sync_slots cimport NO_FIELD, SlotLayout, SyncSlot, slot_damaged, slot_encode, slots_newest

cdef enum:
    LOG_VERSION = 2             # the latest
    LOG_HEAD_SIZE = 4096
    LOG_HEAD_SUMMED = 32        # bytes that the checksum of the head covers
    LOG_HEAD_FIELDS = 40        # with the checksum
    LOG_SLOT_A = 512
    LOG_SLOT_B = 1024
    LOG_SLOT_SIZE = 24
    LOG_RECORD_HEADER = 32
    LOG_BATCH = 1               # record type

cdef extern from * nogil:
    """
    #define LSM_LOG_MAGIC "lsmkvlog"
    #define LSM_LOG_HEAD_SEED 0x6C6F672D70616765ull
    #define LSM_LOG_SLOT_SEED 0x6C6F672D736C6F74ull
    #define LSM_LOG_RECORD_SEED 0x6C6F672D68656164ull
    #define LSM_LOG_PAYLOAD_SEED 0x6C6F672D64617461ull
    """
    const char* LSM_LOG_MAGIC
    const uint64_t LSM_LOG_HEAD_SEED
    const uint64_t LSM_LOG_SLOT_SEED
    const uint64_t LSM_LOG_RECORD_SEED
    const uint64_t LSM_LOG_PAYLOAD_SEED

# A salvaged log is reported with the fields decoded before the damage.
ctypedef struct LogHead:
    uint32_t version
    uint64_t number
    uint64_t previous_last_seq  # last sequence number of the log before this one; 0 in a log created in advance
    uint64_t known_synced       # offset up to which the log is known to be on disk
    uint64_t damaged_slot       # its offset; 0: none

ctypedef struct LogRecord:
    uint64_t offset
    uint64_t first_seq          # of its operations; the others follow one by one
    uint32_t count              # of its operations
    const char* payload         # borrowed
    uint32_t size               # of the payload
    uint64_t synced             # the log was known synced up to here when this record was written


# --- head page -------------------------------------------------------------------------------------------------------

cdef inline SlotLayout log_slots(uint64_t number) noexcept nogil:
    cdef SlotLayout layout
    layout.a = LOG_SLOT_A
    layout.b = LOG_SLOT_B
    layout.number_at = NO_FIELD
    layout.synced_at = 0
    layout.count_at = 8
    layout.checksum_at = LOG_SLOT_SIZE - 8
    layout.seed = number ^ LSM_LOG_SLOT_SEED
    return layout


cdef inline void head_encode(char* head, uint32_t version, uint64_t number, uint64_t previous_last_seq) noexcept nogil:
    """Writes LOG_HEAD_SIZE bytes. Slot B starts with "no record is synced", so a head without a good slot is damaged."""
    cdef SlotLayout slots = log_slots(number)
    cdef SyncSlot slot
    memset(head, 0, LOG_HEAD_SIZE)
    memcpy(head, LSM_LOG_MAGIC, 8)
    put_u32(head + 8, version)
    put_u64(head + 16, number)
    put_u64(head + 24, previous_last_seq)
    put_u64(head + LOG_HEAD_SUMMED, xxh3(head, LOG_HEAD_SUMMED, LSM_LOG_HEAD_SEED))
    slot.number = 0
    slot.synced = LOG_HEAD_SIZE
    slot.count = 1
    slot_encode(&slots, &slot, head + LOG_SLOT_B)


cdef inline int head_decode(const char* head, uint64_t number, LogHead* out, Status* st) noexcept nogil:
    """Decodes LOG_HEAD_SIZE bytes. `number` is that of the file name; 0 accepts any."""
    cdef SlotLayout slots
    cdef SyncSlot slot
    if memcmp(head, LSM_LOG_MAGIC, 8) != 0 or xxh3(head, LOG_HEAD_SUMMED, LSM_LOG_HEAD_SEED) != get_u64(head + LOG_HEAD_SUMMED):
        return fail_corrupt(st, b"log head does not match its checksum", number, 0)
    out.version = get_u32(head + 8)
    if out.version > LOG_VERSION:
        return fail_format(st, b"a newer release of lsmkv wrote the log", number)
    if out.version == 0:
        return fail_corrupt(st, b"unknown log version", number, 8)
    if number and get_u64(head + 16) != number:
        return fail_corrupt(st, b"log carries another log's number", number, 16)
    if not (all_zero(head + LOG_HEAD_FIELDS, LOG_SLOT_A - LOG_HEAD_FIELDS)
            and all_zero(head + LOG_SLOT_A + LOG_SLOT_SIZE, LOG_SLOT_B - LOG_SLOT_A - LOG_SLOT_SIZE)
            and all_zero(head + LOG_SLOT_B + LOG_SLOT_SIZE, LOG_HEAD_SIZE - LOG_SLOT_B - LOG_SLOT_SIZE)):
        return fail_corrupt(st, b"log head has non-zero bytes outside its fields", number, LOG_HEAD_FIELDS)
    out.number = get_u64(head + 16)
    out.previous_last_seq = get_u64(head + 24)
    slots = log_slots(out.number)
    if not slots_newest(&slots, head, &slot):
        # A store interrupted by a kill damages one slot, never both.
        return fail_corrupt(st, b"log head does not say what is synced", number, LOG_SLOT_A)
    out.known_synced = max(slot.synced, <uint64_t>LOG_HEAD_SIZE)
    if slot_damaged(&slots, head + LOG_SLOT_A):
        out.damaged_slot = LOG_SLOT_A
    else:
        out.damaged_slot = LOG_SLOT_B if slot_damaged(&slots, head + LOG_SLOT_B) else 0
    return ST_OK


# --- records ---------------------------------------------------------------------------------------------------------

cdef inline size_t padded(size_t n) noexcept nogil:
    return (n + 7) & ~<size_t>7


cdef inline size_t record_size(size_t n) noexcept nogil:
    """Bytes of a record with n bytes of payload, padding included."""
    return LOG_RECORD_HEADER + padded(n)


cdef inline uint32_t header_checksum(const char* header, uint64_t number, uint64_t offset) noexcept nogil:
    return <uint32_t>xxh3(header + 4, LOG_RECORD_HEADER - 4, (number << 32) ^ offset ^ LSM_LOG_RECORD_SEED)


cdef inline uint32_t payload_checksum(const char* payload, size_t n, uint64_t number) noexcept nogil:
    return <uint32_t>xxh3(payload, n, number ^ LSM_LOG_PAYLOAD_SEED)


cdef inline void record_seal(char* record, size_t n, uint64_t number, uint64_t offset, uint64_t first_seq, uint32_t count,
                             uint64_t synced) noexcept nogil:
    """Writes the header before the n bytes of payload, and the padding after them."""
    cdef char* payload = record + LOG_RECORD_HEADER
    memset(payload + n, 0, padded(n) - n)
    put_u32(record + 4, payload_checksum(payload, n, number))
    put_u32(record + 8, <uint32_t>n)
    put_u32(record + 12, LOG_BATCH | count << 8)
    put_u64(record + 16, first_seq)
    put_u64(record + 24, synced)
    put_u32(record, header_checksum(record, number, offset))


cdef inline bint header_decode(const char* header, uint64_t number, uint64_t offset, LogRecord* record) noexcept nogil:
    """Fills *record except for the payload; False if the checksum does not match."""
    if get_u32(header) != header_checksum(header, number, offset):
        return False
    record.offset = offset
    record.size = get_u32(header + 8)
    record.count = get_u32(header + 12) >> 8
    record.first_seq = get_u64(header + 16)
    record.synced = get_u64(header + 24)
    return True


cdef inline const char* record_problem(const char* p, const LogRecord* record, uint64_t number) noexcept nogil:
    """Checks the rest of a record whose header was decoded. Returns NULL, or what is wrong."""
    cdef const char* payload = p + LOG_RECORD_HEADER
    if get_u32(p + 4) != payload_checksum(payload, record.size, number):
        return b"a record's payload does not match its checksum"
    if not all_zero(payload + record.size, padded(record.size) - record.size):
        return b"a record's padding is not zero"
    return NULL


cdef inline int header_type(const char* header) noexcept nogil:
    return get_u32(header + 12) & 0xFF
