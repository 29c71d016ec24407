# The bytes of a value log and of the pointers into it, for its writer and its readers. Byte grids: docs/format.md, "Value log".
#
#   head | value | value | ...
#   value: header | chunks | chunk table, padded with zeros to a multiple of 8
#
# The identity of the file and the offset seed all checksums of a value, so valid bytes at the wrong place fail. Decoders trust no
# byte: they return NULL, or what is wrong.

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.limits cimport MAX_VALUE
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.compression cimport COMPRESSION_MAX_RATIO, COMPRESSION_ZSTD
from lsmkv_ext.port.coding cimport all_zero, get_u32, get_u64, put_u32, put_u64

cdef enum:
    VALUE_LOG_VERSION = 2       # the latest
    VALUE_LOG_HEAD = 64
    VALUE_HEADER = 24
    VALUE_CHUNK = 64 << 10      # raw bytes of a chunk; the last one may be shorter
    CHUNK_ENTRY = 8             # bytes of the chunk table per chunk
    VALUE_STORED = 0            # any other compression is COMPRESSION_*

cdef extern from * nogil:
    """
    #define LSM_VALUE_LOG_MAGIC "lsmkvVLG"
    #define LSM_VALUE_HEAD_SEED 0x766C6F672D686561ull
    #define LSM_VALUE_SEED 0x766C6F672D76616Cull
    #define LSM_CHUNK_SEED 0x766C6F672D63686Bull
    """
    const char* LSM_VALUE_LOG_MAGIC
    const uint64_t LSM_VALUE_HEAD_SEED
    const uint64_t LSM_VALUE_SEED
    const uint64_t LSM_CHUNK_SEED

ctypedef struct ValuePointer:
    uint64_t number             # of the value log; 0: that of the ingested table which has the pointer
    uint64_t offset
    uint64_t stored             # bytes of all stored chunks
    uint64_t raw                # bytes of the value
    int compression


# --- head ------------------------------------------------------------------------------------------------------------

cdef inline void value_head_encode(char* p, uint64_t number, uint64_t identity) noexcept nogil:
    memset(p, 0, VALUE_LOG_HEAD)
    memcpy(p, LSM_VALUE_LOG_MAGIC, 8)
    put_u32(p + 8, VALUE_LOG_VERSION)
    put_u64(p + 16, number)
    put_u64(p + 24, identity)
    put_u64(p + 56, xxh3(p, 56, LSM_VALUE_HEAD_SEED))


cdef inline const char* value_head_decode(const char* p, uint64_t* number, uint64_t* identity, uint32_t* version) noexcept nogil:
    """If the head is sound, *version is set even where it is above VALUE_LOG_VERSION, which is an error."""
    version[0] = 0
    if memcmp(p, LSM_VALUE_LOG_MAGIC, 8) != 0 or get_u64(p + 56) != xxh3(p, 56, LSM_VALUE_HEAD_SEED):
        return "the head of the value log does not match its checksum"
    version[0] = get_u32(p + 8)
    if version[0] > VALUE_LOG_VERSION:
        return "a newer release of lsmkv wrote the value log"
    number[0] = get_u64(p + 16)
    identity[0] = get_u64(p + 24)
    if version[0] != VALUE_LOG_VERSION or identity[0] == 0 or get_u32(p + 12) != 0 or not all_zero(p + 32, 24):
        return "malformed head of a value log"
    return NULL


# --- geometry --------------------------------------------------------------------------------------------------------

cdef inline uint64_t chunk_count(uint64_t raw) noexcept nogil:
    return (raw + VALUE_CHUNK - 1) // VALUE_CHUNK


cdef inline uint64_t chunk_size(uint64_t raw, uint64_t i) noexcept nogil:
    """Raw bytes of chunk i of a value."""
    return min(<uint64_t>VALUE_CHUNK, raw - i * VALUE_CHUNK)


cdef inline uint64_t value_size(uint64_t stored, uint64_t raw) noexcept nogil:
    """Bytes of a value in the file, without its padding."""
    return VALUE_HEADER + stored + CHUNK_ENTRY * chunk_count(raw)


cdef inline uint64_t value_padded(uint64_t stored, uint64_t raw) noexcept nogil:
    """Bytes of a value in the file, with its padding."""
    return (value_size(stored, raw) + 7) & ~<uint64_t>7


# --- pointer ---------------------------------------------------------------------------------------------------------

cdef inline void pointer_encode(const ValuePointer* v, char* p) noexcept nogil:
    """Writes POINTER_SIZE bytes."""
    put_u64(p, v.number)
    put_u64(p + 8, v.offset)
    put_u64(p + 16, v.stored)
    put_u64(p + 24, v.raw | <uint64_t>v.compression << 56)


cdef inline const char* pointer_decode(const char* p, ValuePointer* v) noexcept nogil:
    v.number = get_u64(p)
    v.offset = get_u64(p + 8)
    v.stored = get_u64(p + 16)
    v.raw = get_u64(p + 24) & (<uint64_t>-1 >> 8)
    v.compression = <uint8_t>p[31]
    if (v.raw > MAX_VALUE or v.stored > v.raw or v.offset < VALUE_LOG_HEAD or v.offset & 7 or v.offset >> 62
            or v.compression > COMPRESSION_ZSTD or (v.compression == VALUE_STORED and v.stored != v.raw)
            or v.raw > COMPRESSION_MAX_RATIO * v.stored):
        return "malformed pointer to a value"
    return NULL


cdef inline uint64_t pointer_end(const ValuePointer* v) noexcept nogil:
    """The offset after the value and its chunk table."""
    return v.offset + value_size(v.stored, v.raw)


# --- value -----------------------------------------------------------------------------------------------------------

cdef inline void value_header_encode(char* p, const ValuePointer* v, uint64_t identity) noexcept nogil:
    """Writes VALUE_HEADER bytes."""
    put_u64(p, <uint64_t>v.compression << 32)
    put_u64(p + 8, v.raw)
    put_u64(p + 16, v.stored)
    put_u32(p, <uint32_t>xxh3(p + 4, VALUE_HEADER - 4, identity ^ v.offset ^ LSM_VALUE_SEED))


cdef inline const char* value_header_check(const char* p, const ValuePointer* v, uint64_t identity) noexcept nogil:
    """Checks that the value at the pointer is the one that it means."""
    if get_u32(p) != <uint32_t>xxh3(p + 4, VALUE_HEADER - 4, identity ^ v.offset ^ LSM_VALUE_SEED):
        return "the header of a value does not match its checksum"
    if get_u32(p + 4) != <uint32_t>v.compression or get_u64(p + 8) != v.raw or get_u64(p + 16) != v.stored:
        return "a value is not the one that its pointer means"
    return NULL


cdef inline uint32_t chunk_checksum(const char* chunk, size_t n, uint64_t offset, uint64_t identity) noexcept nogil:
    """`offset` is that of the chunk in the file."""
    return <uint32_t>xxh3(chunk, n, identity ^ offset ^ LSM_CHUNK_SEED)


cdef inline void chunk_entry_encode(char* p, uint32_t stored, uint32_t checksum) noexcept nogil:
    put_u32(p, stored)
    put_u32(p + 4, checksum)


cdef inline const char* chunk_sizes_check(const char* table, const ValuePointer* v) noexcept nogil:
    """Checks the stored sizes in a chunk table: afterwards all chunks lie within the value."""
    cdef uint64_t i, size, total = 0
    for i in range(chunk_count(v.raw)):
        size = get_u32(table + i * CHUNK_ENTRY)
        if size == 0 or size > chunk_size(v.raw, i) or (v.compression == VALUE_STORED and size != chunk_size(v.raw, i)):
            return "malformed chunk table"
        total += size
    if total != v.stored:
        return "malformed chunk table"
    return NULL


cdef inline uint32_t chunk_stored(const char* table, uint64_t i) noexcept nogil:
    return get_u32(table + i * CHUNK_ENTRY)


cdef inline const char* chunk_check(const char* table, uint64_t i, const char* chunk, uint64_t offset,
                                    uint64_t identity) noexcept nogil:
    if get_u32(table + i * CHUNK_ENTRY + 4) != chunk_checksum(chunk, chunk_stored(table, i), offset, identity):
        return "a chunk of a value does not match its checksum"
    return NULL
