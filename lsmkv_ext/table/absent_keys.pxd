# The absent keys of a table that passed its filter: a lookup that asks for one again does not read the table. A table is
# immutable, so this holds for every snapshot. The keys die with the table.
#
# At most ABSENT_KEYS keys of at most ABSENT_MAX_KEY bytes. The hash finds an entry, but the bytes of the key decide: two keys may
# have the same hash. A key that was asked for again survives one attempt to replace it.
#
# Thread-safe without the GIL: pointer and hashes are atomic, all else changes and is compared under the mutex. A lookup whose
# hash matches none takes no lock.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint64_t

from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.pthread cimport pthread_mutex_t

cdef enum:
    ABSENT_SETS = 8
    ABSENT_WAYS = 8
    ABSENT_KEYS = 64
    ABSENT_MAX_KEY = 256           # bytes

ctypedef struct AbsentKeys:
    uint64_t hashes[ABSENT_KEYS]   # atomic; the ways of each set in turn; 0 = free
    char* keys[ABSENT_KEYS]        # owned
    uint16_t lengths[ABSENT_KEYS]
    uint8_t asked[ABSENT_KEYS]     # asked for since it was last passed over
    uint8_t hands[ABSENT_SETS]     # the way to look at next for a place
    uint64_t bytes                 # of all this
    pthread_mutex_t lock


cdef inline bint absent_keys_match(AbsentKeys** keys, uint64_t hash) noexcept nogil:
    """Whether a remembered key may have this hash. False for nearly all others."""
    cdef AbsentKeys* a = <AbsentKeys*>lsm_load_ptr(<void**>keys)
    cdef uint64_t* ways
    cdef int i
    if a == NULL:
        return False
    ways = &a.hashes[(hash % ABSENT_SETS) * ABSENT_WAYS]
    for i in range(ABSENT_WAYS):
        if lsm_load64(&ways[i]) == hash:
            return True
    return False


# Whether the key is remembered. Call it if absent_keys_match.
cdef bint absent_keys_hold(AbsentKeys* a, const char* key, size_t klen, uint64_t hash) noexcept nogil
# Remembers a key that the table does not have; allocates *keys at first. Without memory, or for a long key, it does nothing.
# Returns by how many bytes *keys grew.
cdef int64_t absent_keys_add(AbsentKeys** keys, const char* key, size_t klen, uint64_t hash) noexcept nogil
cdef uint64_t absent_keys_bytes(AbsentKeys** keys) noexcept nogil
# Nobody may use them any more. NULL is fine.
cdef void absent_keys_free(AbsentKeys* a) noexcept nogil
