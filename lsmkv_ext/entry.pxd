# The kind of an entry, in memtables, blocks and merges, and the expiry at the start of its value.
#
# Whatever moves entries copies kind and value as they are; only a read or a compaction looks for an expiry or follows a pointer.
# A plain value has kind 0, so one test is all that it costs.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.coding cimport get_u64
from lsmkv_ext.port.wall_clock cimport ClockC

cdef enum:                      # bits
    ENTRY_EXPIRY = 1            # the value starts with an expiry
    ENTRY_POINTER = 2           # the rest of the value is a pointer into a value log (values/format)
    ENTRY_DELETE = 4            # a tombstone, without a value. Blocks store this bit with the sequence number
    STORED_KINDS = ENTRY_EXPIRY | ENTRY_POINTER     # bits that the entry kinds of a block may have

cdef enum:
    EXPIRY_SIZE = 8             # bytes
    POINTER_SIZE = 32           # bytes

cdef extern from * nogil:
    """
    #ifndef LSMKV_ENTRY_H
    #define LSMKV_ENTRY_H
    #define MAX_EXPIRY (1ULL << 62)     /* milliseconds since 1970; never reached */
    #endif
    """
    const uint64_t MAX_EXPIRY


cdef inline uint64_t expiry_of(const char* value) noexcept nogil:
    """Of a value that starts with one."""
    return get_u64(value)


cdef inline bint is_expiry(uint64_t expiry) noexcept nogil:
    return 0 < expiry <= MAX_EXPIRY


cdef inline size_t expiry_size(int kind) noexcept nogil:
    """Bytes of the expiry at the start of a value."""
    return EXPIRY_SIZE if kind & ENTRY_EXPIRY else 0


cdef inline size_t stored_size(size_t vlen, uint64_t expiry) noexcept nogil:
    """Bytes of a value with its expiry, which is 0 if it has none."""
    return vlen + EXPIRY_SIZE if expiry else vlen


# The expiry that the arguments of a put ask for: `ttl` in seconds or as a timedelta, `expire_at` in seconds since 1970 or as a
# datetime. 0 if both are None. May run Python code.
cdef uint64_t expiry_from(object ttl, object expire_at, ClockC* clock) except? 0
