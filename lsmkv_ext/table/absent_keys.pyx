"""The absent keys that passed a table's filter."""

cimport cython
from libc.string cimport memcmp, memcpy, memset

from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.atomics cimport lsm_cas64, lsm_store64
from lsmkv_ext.port.pthread cimport pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock


cdef AbsentKeys* _allocated(AbsentKeys** keys, int64_t* grown) noexcept nogil:
    """*keys, allocated by the first caller; NULL without memory."""
    cdef AbsentKeys* a = <AbsentKeys*>lsm_load_ptr(<void**>keys)
    if a != NULL:
        return a
    a = <AbsentKeys*>lsm_alloc(sizeof(AbsentKeys))
    if a == NULL:
        return NULL
    memset(a, 0, sizeof(AbsentKeys))
    if pthread_mutex_init(&a.lock, NULL) != 0:
        lsm_free(a)
        return NULL
    a.bytes = sizeof(AbsentKeys)
    if lsm_cas64(<uint64_t*>keys, 0, <uint64_t>a):
        grown[0] = sizeof(AbsentKeys)
        return a
    absent_keys_free(a)            # another thread was first
    return <AbsentKeys*>lsm_load_ptr(<void**>keys)


cdef inline bint _is(const AbsentKeys* a, int i, const char* key, size_t klen, uint64_t hash) noexcept nogil:
    return a.hashes[i] == hash and a.keys[i] != NULL and a.lengths[i] == klen and memcmp(a.keys[i], key, klen) == 0


cdef int _find(const AbsentKeys* a, const char* key, size_t klen, uint64_t hash) noexcept nogil:
    """Its place, or -1. The lock is held."""
    cdef int first = <int>(hash % ABSENT_SETS) * ABSENT_WAYS
    cdef int i
    for i in range(first, first + ABSENT_WAYS):
        if _is(a, i, key, klen, hash):
            return i
    return -1


cdef int _place(AbsentKeys* a, uint64_t hash) noexcept nogil:
    """A free place in the hash's set, or that of a key that nobody asked for since the hand passed it. The lock is held."""
    cdef int s = <int>(hash % ABSENT_SETS)
    cdef int first = s * ABSENT_WAYS
    cdef int i
    for i in range(first, first + ABSENT_WAYS):
        if a.hashes[i] == 0:
            return i
    while True:
        i = first + a.hands[s]
        a.hands[s] = (a.hands[s] + 1) % ABSENT_WAYS
        if not a.asked[i]:
            return i
        a.asked[i] = 0


cdef bint absent_keys_hold(AbsentKeys* a, const char* key, size_t klen, uint64_t hash) noexcept nogil:
    cdef int i
    pthread_mutex_lock(&a.lock)
    i = _find(a, key, klen, hash)
    if i >= 0:
        a.asked[i] = 1
    pthread_mutex_unlock(&a.lock)
    return i >= 0


cdef int64_t absent_keys_add(AbsentKeys** keys, const char* key, size_t klen, uint64_t hash) noexcept nogil:
    cdef int64_t grown = 0
    cdef AbsentKeys* a
    cdef char* copy
    cdef char* old = NULL
    cdef int i
    if klen > ABSENT_MAX_KEY or hash == 0:
        return 0
    a = _allocated(keys, &grown)
    copy = <char*>lsm_alloc(klen)
    if a == NULL or copy == NULL:
        lsm_free(copy)
        return grown
    memcpy(copy, key, klen)
    pthread_mutex_lock(&a.lock)
    if _find(a, key, klen, hash) >= 0:
        old = copy                 # another thread was first
    else:
        i = _place(a, hash)
        old = a.keys[i]
        grown += <int64_t>klen - a.lengths[i]
        a.bytes += klen - a.lengths[i]
        a.keys[i] = copy
        a.lengths[i] = <uint16_t>klen
        a.asked[i] = 0
        lsm_store64(&a.hashes[i], hash)
    pthread_mutex_unlock(&a.lock)
    lsm_free(old)
    return grown


cdef uint64_t absent_keys_bytes(AbsentKeys** keys) noexcept nogil:
    cdef AbsentKeys* a = <AbsentKeys*>lsm_load_ptr(<void**>keys)
    cdef uint64_t n
    if a == NULL:
        return 0
    pthread_mutex_lock(&a.lock)
    n = a.bytes
    pthread_mutex_unlock(&a.lock)
    return n


cdef void absent_keys_free(AbsentKeys* a) noexcept nogil:
    cdef int i
    if a == NULL:
        return
    for i in range(ABSENT_KEYS):
        lsm_free(a.keys[i])
    pthread_mutex_destroy(&a.lock)
    lsm_free(a)


@cython.final
cdef class AbsentKeySet:
    """The absent keys of one table, for tests: `hash` need not be that of the key."""
    cdef AbsentKeys* keys

    def __dealloc__(self):
        absent_keys_free(self.keys)

    def add(self, bytes key not None, uint64_t hash):
        """Remembers a key. Returns by how many bytes the set grew."""
        cdef const char* k = key
        cdef size_t n = <size_t>len(key)
        cdef int64_t grown
        with nogil:
            grown = absent_keys_add(&self.keys, k, n, hash)
        return grown

    def holds(self, bytes key not None, uint64_t hash):
        """Asks for a key."""
        cdef const char* k = key
        cdef size_t n = <size_t>len(key)
        cdef bint held
        with nogil:
            held = absent_keys_match(&self.keys, hash) and absent_keys_hold(self.keys, k, n, hash)
        return bool(held)

    @property
    def bytes(self):
        return absent_keys_bytes(&self.keys)
