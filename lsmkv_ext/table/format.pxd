# The bytes of an SSTable outside its data blocks: one encoder and one decoder per structure, for builder and reader. Byte grids:
# docs/format.md, "SSTable".
#
#   data blocks | index | (padding) filter bits, 64-byte aligned | range tombstones | properties | footer
#
# Every section but the filter bits and the footer is framed: payload, then FRAME_TRAILER bytes
#   u32 raw size | u8 compression | u32 checksum
# The checksum covers payload, raw size and compression. It is seeded with the kind of section and its offset in the file, so a
# frame at the wrong offset fails.
#
# Decoders trust no byte. Those that return a text return NULL, or what is wrong. Those that return the next byte return NULL
# where the input is malformed.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.limits cimport MAX_KEY
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_varint, put_u32
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.meta cimport ValueUse

cdef enum:
    FRAME_TRAILER = 9
    FRAME_STORED = 0
    FRAME_ZSTD = 2                 # only in tables of version 2 whose properties say so; never the frame of the properties
    FOOTER_SIZE = 160
    LATEST_TABLE_VERSION = 2
    FOOTER_FILTER_HEADER = 64      # the filter's header comes first; with a checksum of its own, so the filter can fail open
    OPEN_ALLOWANCE = 16 << 20      # opening a table allocates at most its file size plus this
    RANGE_COST = 2                 # bytes of index that an open table needs per range tombstone, once they are many
    FILTER_ALIGN = 64
    # sections, for the seed of their checksums
    SECTION_DATA = 1
    SECTION_INDEX = 2
    SECTION_TOMBSTONES = 3
    SECTION_PROPS = 4
    SECTION_FOOTER = 5
    # ids of properties
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
    PROP_COUNT_1 = 22              # ids below this are known in version 1
    PROP_EXPIRING = 22             # entries with an expiry; only in tables that have some, like the next three
    PROP_MIN_EXPIRY = 23
    PROP_MAX_EXPIRY = 24
    PROP_EXPIRING_BYTES = 25       # of their keys and values
    PROP_VALUE_LOGS = 26           # bytes; only in tables with pointers
    PROP_KEYSPACE = 27             # only in tables of named keyspaces, like the next
    PROP_KEYSPACE_NAME = 28        # bytes
    PROP_COUNT = 29                # ids below this are known
    MAX_KEYSPACE_NAME = 255        # bytes

cdef extern from * nogil:
    """
    #define LSM_FRAME_SEED 0x6c736d6b76667261ull
    """
    const uint64_t LSM_FRAME_SEED


# --- frames ----------------------------------------------------------------------------------------------------------

ctypedef struct Frame:             # a checked frame
    const char* payload            # borrowed
    size_t payload_len
    uint32_t raw_size
    int compression                # COMPRESSION_*


cdef inline uint64_t section_seed(int section, uint64_t offset) noexcept nogil:
    return LSM_FRAME_SEED ^ <uint64_t>section << 56 ^ offset


cdef inline void frame_seal(char* payload, size_t n, uint32_t raw_size, uint8_t compression, int section,
                            uint64_t offset) noexcept nogil:
    """Writes the trailer after payload[:n]."""
    put_u32(payload + n, raw_size)
    payload[n + 4] = <char>compression
    put_u32(payload + n + 5, <uint32_t>xxh3(payload, n + 5, section_seed(section, offset)))


# Writes the trailer of an uncompressed frame after rest[:n]; the payload is front[:front_len] + rest[:n]. -1: out of memory.
cdef int frame_seal_split(const char* front, size_t front_len, char* rest, size_t n, int section, uint64_t offset) noexcept nogil
# Checks frame[:n], trailer included: checksum and sizes. Returns NULL and out.raw_size is safe to allocate, or what is wrong.
# `zstd`: whether the frame may be FRAME_ZSTD.
cdef const char* frame_check(const char* frame, size_t n, int section, uint64_t offset, bint zstd, Frame* out) noexcept nogil
# Decompresses or copies into `raw` (raw_size bytes). *st is as `decompress` says (port/compression).
cdef int frame_unpack(const Frame* f, char* raw, uint64_t number, uint64_t offset, Status* st) noexcept nogil


# --- footer ----------------------------------------------------------------------------------------------------------

ctypedef struct Section:
    uint64_t at                    # offset in the file
    uint64_t size                  # with its trailer

ctypedef struct Footer:
    char filter_header[FOOTER_FILTER_HEADER]
    Section index, filter, tombstones, props
    uint64_t data_end
    uint32_t version

cdef void footer_encode(const Footer* f, char* out) noexcept nogil               # FOOTER_SIZE bytes
# `end` is the footer's own offset. Returns NULL, or what is wrong and in *at the offset in the file. If the footer is sound,
# out.version is set even where it is above LATEST_TABLE_VERSION, which is an error.
cdef const char* footer_decode(const char* p, uint64_t end, Footer* out, uint64_t* at) noexcept nogil


# --- properties ------------------------------------------------------------------------------------------------------

ctypedef struct Properties:
    uint64_t numbers[PROP_COUNT]   # by id; 0 if missing
    const char* smallest           # borrowed; NULL if missing
    size_t smallest_len
    const char* largest
    size_t largest_len
    const char* keyspace_name
    size_t keyspace_name_len
    const char* value_logs         # encoded; NULL if missing
    size_t value_logs_len

# A table has the properties of version 1, those of its expiries and its value logs if it has some, and those of its keyspace if
# that is not 0. -1: out of memory.
cdef int props_encode(const Properties* props, GrowBuf* out) noexcept nogil
# Skips ids that `version` does not know, and everything after a malformed property. The bytes are borrowed from `p`.
cdef void props_decode(const char* p, size_t n, uint32_t version, Properties* out) noexcept nogil


cdef enum:
    MIN_USE = 12                   # bytes: four numbers and an identity

cdef int use_encode(const ValueUse* use, GrowBuf* out) noexcept nogil            # of PROP_VALUE_LOGS. -1: out of memory
# Returns the byte after it, or NULL if it is malformed.
cdef const char* use_decode(const char* p, const char* end, ValueUse* out) noexcept nogil


# --- index -----------------------------------------------------------------------------------------------------------

ctypedef struct IndexEntry:
    uint64_t shared                # bytes shared with the separator before it
    uint64_t unshared
    const char* suffix             # borrowed
    uint64_t size                  # of the block's frame
    uint64_t n_entries

cdef enum:
    MIN_INDEX_ENTRY = 4            # bytes: four lengths of one byte each

cdef int index_entry_encode(const IndexEntry* e, GrowBuf* out) noexcept nogil    # -1: out of memory
# Returns the byte after it, or NULL if it is malformed. The caller checks `shared`.
cdef const char* index_entry_decode(const char* p, const char* end, IndexEntry* e) noexcept nogil


cdef inline uint64_t block_cost(uint64_t sep_len) noexcept nogil:
    """Returns at most how many bytes one block takes in the index of an open table: offset, separator offset, block pointer,
    8-byte prefixes (8/7 of one), and the separator."""
    return 40 + sep_len


# --- range tombstones ------------------------------------------------------------------------------------------------

ctypedef struct RangeTombstone:    # hides keys in [start, stop) with a smaller sequence number; keys are borrowed
    const char* start
    size_t start_len
    const char* stop
    size_t stop_len
    uint64_t seq

cdef enum:
    MIN_RANGE = 4                  # bytes: three numbers and a stop key

cdef int range_encode(const RangeTombstone* r, GrowBuf* out) noexcept nogil      # -1: out of memory
# The order in their section: by start, then newest first. <0, 0, >0.
cdef int range_compare(const RangeTombstone* a, const RangeTombstone* b) noexcept nogil
# Sorts the n encoded range tombstones of `section` into that order. -1: out of memory.
cdef int tombstones_sort(GrowBuf* section, size_t n) noexcept nogil


cdef inline const char* range_decode(const char* p, const char* end, RangeTombstone* r) noexcept nogil:
    """Returns the byte after it, or NULL if it is malformed. The caller checks start < stop."""
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
