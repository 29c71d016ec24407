"""What the filters for Python have in common."""

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from lsmkv_ext.filter.key_hasher cimport HASH_CHUNK, KeyHasher, hash_key
from lsmkv_ext.port.codecs cimport xxh3

from lsmkv_ext.filter.family_format import compress as compress_blob

cdef uint64_t FINGERPRINT_SEED = 0x66696E6765727072ULL


cdef uint64_t fingerprint(const uint8_t* bits, size_t n) noexcept nogil:
    return xxh3(bits, n, FINGERPRINT_SEED)


def restore(cls, data):
    """Return the filter of `data`: the other half of pickling."""
    return cls.from_bytes(data)


cdef class KeyFilter:
    """Base of the filters: tests keys, one by one or many."""

    cdef int _check(self) except -1:
        return 0

    cdef int _begin(self) except -1:
        return self._check()

    cdef void _end(self) noexcept:
        pass

    cdef bint _test_hash(self, uint64_t h) except -1:
        raise NotImplementedError

    cdef int _test_hashes(self, const uint64_t* hashes, size_t n, uint8_t* out) except -1 nogil:
        with gil:
            raise NotImplementedError

    def __contains__(self, key):
        cdef uint64_t h = 0
        hash_key(key, self.hash_seed, &h)
        return self._test_hash(h)

    def test_many(self, keys):
        """Return for each key, in order, whether it was probably added: a list of bool.

        `keys` is as in `BlockedBloom.add_many`. For a column the result is a memoryview of format "?", which numpy.asarray takes
        without a copy.

        >>> lsmkv.BlockedBloom(1000).test_many([b"ada", b"bob"])
        [False, False]
        """
        cdef KeyHasher hasher = KeyHasher(keys, self.hash_seed)
        cdef uint8_t* verdicts = <uint8_t*>malloc(HASH_CHUNK)
        cdef Py_ssize_t n, i
        cdef list out = []
        cdef bytearray column = bytearray()
        if verdicts == NULL:
            raise MemoryError("no memory to test a batch of keys")
        try:
            n = hasher.take()
            self._begin()
            try:
                while n:
                    with nogil:
                        if hasher.hash_taken(n):
                            self._test_hashes(hasher.hashes, <size_t>n, verdicts)
                    hasher.check()
                    if hasher.column is not None:
                        column += verdicts[:n]
                    else:
                        for i in range(n):
                            out.append(True if verdicts[i] else False)
                    n = hasher.take()
            finally:
                self._end()
        finally:
            free(verdicts)
        return out if hasher.column is None else memoryview(column).cast("?")

    def copy(self):
        """Return an independent filter with the same keys.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.copy() == seen
        True
        """
        return restore(type(self), self.to_bytes())

    def to_bytes(self, *, compress=False):
        """Return the filter as bytes, with checksums. docs/format.md describes them.

        With `compress`, in fewer bytes if that is possible. It helps as long as the filter is far from full.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> len(seen.to_bytes()), len(seen.to_bytes(compress=True)) < 200
        (1344, True)
        """
        blob = self._blob()
        return compress_blob(blob) if compress else blob

    def digest(self):
        """Return a dict of what two peers compare before they ship a filter.

        It has the `kind`, the `parameters`, which must be equal to merge, the `count`, and the `fingerprint`. Filters
        with equal parameters and fingerprints hold the same keys.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.digest() == seen.copy().digest()
        True
        """
        return {
            "kind": type(self).__name__, "parameters": self._parameters(), "count": self.count,
            "fingerprint": self._fingerprint(),
        }

    def __reduce__(self):
        return restore, (type(self), self.to_bytes())

    @property
    def seed(self):
        """The seed of the hash.

        >>> lsmkv.BlockedBloom(1000, seed=7).seed
        7
        """
        return self.hash_seed


cdef class GrowingFilter(KeyFilter):
    """Base of the filters to which keys can be added, one by one or many."""

    cdef bint _add_hash(self, uint64_t h) except -1:
        raise NotImplementedError

    cdef int _add_hashes(self, const uint64_t* hashes, size_t n) except -1 nogil:
        with gil:
            raise NotImplementedError

    def add(self, key):
        """Add a key. Raises `TypeError` if it is not bytes-like.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.add(b"ada")
        """
        cdef uint64_t h = 0
        hash_key(key, self.hash_seed, &h)
        self._add_hash(h)

    def test_and_add(self, key):
        """Add a key. Returns True if it was probably added before.

        Of several threads that add a new key, one gets False.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.test_and_add(b"ada"), seen.test_and_add(b"ada")
        (False, True)
        """
        cdef uint64_t h = 0
        cdef bint found
        hash_key(key, self.hash_seed, &h)
        found = self._test_hash(h)
        self._add_hash(h)
        return found

    def add_many(self, keys):
        """Add every key of an iterable or a column. Other threads run while it hashes and sets bits.

        A column makes no Python object per key. It is an object with `__arrow_c_stream__` or `__arrow_c_array__` whose
        type is binary or text in any layout; a numpy array of dtype S or V, or of uint8 and two dimensions; or a pair
        of buffers (data, offsets). An S drops its trailing zero bytes, as in numpy. Raises `ValueError` for a null and for
        an inconsistent column, and `TypeError` for one of another type; the keys before it may have been added.

        >>> seen = lsmkv.BlockedBloom(1000)
        >>> seen.add_many([b"ada", b"bob"])
        """
        cdef KeyHasher hasher = KeyHasher(keys, self.hash_seed)
        cdef Py_ssize_t n = hasher.take()
        self._begin()
        try:
            while n:
                with nogil:
                    if hasher.hash_taken(n):
                        self._add_hashes(hasher.hashes, <size_t>n)
                hasher.check()
                n = hasher.take()
        finally:
            self._end()
