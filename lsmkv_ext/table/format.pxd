# What the writer and the reader of an SSTable agree on. Byte grids: docs/format.md, "SSTable".
#
#   data blocks | index | (padding) filter bits, 64-byte aligned | range tombstones | properties | footer
#
# Every section but the filter bits and the footer is framed: payload, then FRAME_TRAILER bytes
#   u32 raw size | u8 compression | u32 checksum
# The checksum covers payload, raw size and compression, and is seeded by the kind of section and its offset in the
# file: bytes from the right file at the wrong place do not pass.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u32, get_varint, put_u32
from lsmkv_ext.limits cimport MAX_KEY

cdef enum:
    FRAME_TRAILER = 9
    FRAME_STORED = 0
    FRAME_LZ4 = 1
    FRAME_LZ4_MAX_RAW = 48 << 20   # what is larger is stored as it is: a few hostile bytes must not ask for a gigabyte
    FOOTER_SIZE = 160
    FOOTER_SUMMED_FROM = 64        # the filter's header in front has its own checksum, so that it can fail open
    FOOTER_SUM_AT = 144
    FOOTER_MAGIC_AT = 152
    TABLE_VERSION = 1
    OPEN_ALLOWANCE = 16 << 20      # opening a table takes at most so many bytes more than its file has
    # An open table knows where each of its range tombstones begins, in 4 bytes; from so many bytes of them on, where every
    # 2^RANGE_SHIFT-th does.
    RANGES_SPARSE = 64 << 10
    RANGE_SHIFT = 4
    RANGE_COST = 2                 # bytes that each takes then at most, beside its own
    FILTER_ALIGN = 64
    # kinds of section, for the checksum's seed
    KIND_DATA = 1
    KIND_INDEX = 2
    KIND_RANGES = 3
    KIND_PROPS = 4
    KIND_FOOTER = 5
    # properties: a number is 8 bytes, little endian
    PROP_N_ENTRIES = 1
    PROP_N_DELETES = 2
    PROP_N_RANGE_TOMBSTONES = 3
    PROP_KEY_BYTES = 4
    PROP_VALUE_BYTES = 5
    PROP_DATA_BYTES = 6
    PROP_N_BLOCKS = 7
    PROP_MIN_SEQ = 8
    PROP_MAX_SEQ = 9
    PROP_SEED = 10
    PROP_SMALLEST = 11             # bytes
    PROP_LARGEST = 12              # bytes
    PROP_LARGEST_EXCLUSIVE = 13
    PROP_NUMBER = 14
    PROP_CREATED = 15
    PROP_LEVEL = 16
    PROP_COMPRESSION = 17
    PROP_BLOCK_SIZE = 18
    PROP_RESTART_INTERVAL = 19
    PROP_FILTER_KEYS = 20
    PROP_FILTER_BLOCKS = 21
    PROP_COUNT = 22                # ids below this are known

cdef extern from * nogil:
    """
    #define LSM_TABLE_MAGIC 0x545353766b6d736cull   /* "lsmkvSST" */
    #define LSM_FRAME_SEED 0x6c736d6b76667261ull
    """
    const uint64_t LSM_TABLE_MAGIC
    const uint64_t LSM_FRAME_SEED


ctypedef struct RangeTombstone:       # hides keys in [start, stop) with a smaller sequence number; keys are borrowed
    const char* start
    size_t start_len
    const char* stop
    size_t stop_len
    uint64_t seq


cdef inline const char* range_decode(const char* p, const char* end, RangeTombstone* r) noexcept nogil:
    """A range tombstone as it stands in its section; returns the byte behind it, or NULL where it is malformed. That start < stop is
    left to the reader of a file."""
    cdef uint64_t start_len, stop_len
    p = get_varint(p, end, &start_len)
    if p != NULL:
        p = get_varint(p, end, &stop_len)
    if p != NULL:
        p = get_varint(p, end, &r.seq)
    if p == NULL or start_len > MAX_KEY or stop_len > MAX_KEY or start_len + stop_len > <uint64_t>(end - p):
        return NULL
    r.start = p
    r.start_len = start_len
    r.stop = p + start_len
    r.stop_len = stop_len
    return p + start_len + stop_len


cdef inline uint64_t block_cost(uint64_t sep_len) noexcept nogil:
    """What one block takes in the index of an open table, at most: offset, place of the separator, cached block,
    8-byte prefixes (8/7 of one), and the separator."""
    return 40 + sep_len


cdef inline uint64_t section_seed(int kind, uint64_t offset) noexcept nogil:
    return LSM_FRAME_SEED ^ <uint64_t>kind << 56 ^ offset


cdef inline void frame_seal(char* payload, size_t n, uint32_t raw_size, uint8_t compression, int kind,
                            uint64_t offset) noexcept nogil:
    """Writes the trailer behind payload[:n]."""
    put_u32(payload + n, raw_size)
    payload[n + 4] = <char>compression
    put_u32(payload + n + 5, <uint32_t>xxh3(payload, n + 5, section_seed(kind, offset)))


cdef inline bint frame_intact(const char* frame, size_t n, int kind, uint64_t offset) noexcept nogil:
    """Whether frame[:n], trailer included, has its checksum right."""
    if n < FRAME_TRAILER:
        return False
    return get_u32(frame + n - 4) == <uint32_t>xxh3(frame, n - 4, section_seed(kind, offset))
