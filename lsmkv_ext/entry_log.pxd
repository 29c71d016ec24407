# The records of a cache (`lsmkv.cache`) in the keyspaces of a database, and their only encoder and decoder.
#
#     index       key                ->  position (8), expiry (8), size (4), kind (1), segment (1), tag
#     segment i   position (8)       ->  value
#     queue       position (8)       ->  live bytes (8), number of entries (8), key
#     expiries    expiry (8), key    ->  nothing; only of entries that expire
#     tags        tag, key           ->  nothing; only of entries with a tag
#
# Numbers are big-endian, so positions and expiries sort as keys. A position is the number of bytes appended up to the end of an
# entry: positions grow, and their differences are sizes. Expiries are in milliseconds since 1970, 0 for never.
#
# The values are a log in segments, each a keyspace. Its tables never overlap, so they are not compacted. A segment whose entries
# are all garbage is deleted as a range, which drops its tables unread, and used again.
#
# Every change ends with a record of `queue`, which has the totals after it. A record without a key holds nothing else.
#
# The caller holds the lock of the cache, except for `read`, which needs none.
#
# GIL-protected: every field

from libc.stdint cimport uint64_t

from lsmkv_ext.store cimport Store

cdef enum:
    POSITION_AT = 0
    EXPIRY_AT = 8
    SIZE_AT = 16
    KIND_AT = 20
    SEGMENT_AT = 21
    TAG_AT = 22
    TOTALS_SIZE = 16            # of a record of `queue`, before its key
    NUMBER_SIZE = 8

cdef enum:
    # What an entry takes besides its key and value: its fields, its record in `queue`, and the overhead in blocks.
    ENTRY_OVERHEAD = 96
    MARK_SIZE = 32              # of a record of `queue` alone

cdef extern from "<stdint.h>":
    const uint64_t NO_LIMIT "UINT64_MAX"


cdef class EntryLog:
    cdef readonly Store index
    cdef readonly list segments     # Stores
    cdef readonly Store queue
    cdef readonly Store expiries
    cdef readonly Store tags
    cdef public uint64_t live   # bytes of all entries
    cdef public uint64_t count  # entries
    cdef public uint64_t tail   # position of the last record
    cdef public int segment     # in which values are appended
    # A write beyond one of these first calls `make_room`.
    cdef public uint64_t limit          # for `live`
    cdef public uint64_t check_at       # for `tail`: where to look for garbage again
    cdef public uint64_t next_expiry    # for the time: no entry expires before; NEVER if none does
    # One byte per key hash: read since eviction last passed it. The size is a power of two. None: not "lru".
    cdef public bytearray slots
    cdef public uint64_t hits
    cdef public uint64_t misses
    cdef public object transaction      # a Transaction whose writes the lock's holder sees, or None
    cdef Store segment_of(self, bytes entry)
    cdef Py_ssize_t slot_of(self, bytes raw)
    cdef object lookup(self, Store store, bytes key)
    # `writer` is a WriteBatch of the database or the transaction.
    cdef int put(self, object writer, Store store, bytes key, bytes value) except -1
    cdef bytes totals(self, bytes raw)
    cdef int delete(self, object writer, Store store, bytes key) except -1
