"""A Bloom filter that grows."""

import struct

from libc.stdint cimport uint8_t, uint64_t

from lsmkv_ext.filter.bloom cimport BlockedBloom
from lsmkv_ext.filter.key_hasher cimport HASH_CHUNK
from lsmkv_ext.filter.layered cimport LayeredBloom

from lsmkv_ext.filter.bloom import BlockedBloom as Layer
from lsmkv_ext.filter.curve import bits_for_fpr, blocks_for, k_for
from lsmkv_ext.filter.family_format import KIND_SCALABLE as _KIND_SCALABLE, decode, encode, expand, pack, refuse, unpack
from lsmkv_ext.filter.parameters import LARGEST_CAPACITY as _LARGEST_CAPACITY, checked_capacity, checked_fpr, checked_seed

_PARAMETERS = struct.Struct("<Qd")


cdef class ScalableBloom(LayeredBloom):
    """ScalableBloom(capacity=10000, fpr=None, *, seed=0)\n--\n\n\
    A Bloom filter that grows: its false positive rate stays below `fpr` (default 1 %) however many keys are added.

    It begins with a layer for `capacity` keys. When that is full, it adds a layer with twice the capacity and half the
    rate; half of `fpr` goes to the first one. A lookup probes all layers. If the number of keys is known, a
    `BlockedBloom` is smaller and faster. Any number of threads may use it; adds take turns.

    Raises `ValueError` or `TypeError` for a wrong parameter.

    >>> seen = lsmkv.ScalableBloom(100, 0.01)
    >>> seen.add_many(b"%d" % i for i in range(10_000))
    >>> seen.n_layers > 5, seen.expected_fpr < 0.01
    (True, True)
    """

    cdef uint64_t first_capacity
    cdef double rate
    cdef uint64_t room            # of the last layer, when it was empty

    def __init__(self, capacity=10000, fpr=None, *, seed=0):
        checked_capacity(capacity)
        rate = checked_fpr(fpr)
        checked_seed(seed)
        if self.parts:
            raise TypeError("a ScalableBloom is made once")
        self.first_capacity = capacity
        self.rate = rate
        self.hash_seed = seed
        self._grow()

    cdef int _grow(self) except -1:
        cdef list layers = self.parts
        n = len(layers)
        capacity = min(self.first_capacity << n, _LARGEST_CAPACITY)
        fresh = Layer(capacity, self.rate / 2 ** (n + 1), seed=self.hash_seed)
        if self.parts is layers:            # no other thread was faster
            self.parts = [*layers, fresh]
            self.room = capacity
        return 0

    cdef int _check(self) except -1:
        if not self.parts:
            raise ValueError("this ScalableBloom was not initialized")
        return 0

    cdef BlockedBloom _last(self):
        """The layer that takes the next key."""
        cdef BlockedBloom last
        self._check()
        last = self.parts[len(self.parts) - 1]
        while last.count >= self.room:
            self._grow()
            last = self.parts[len(self.parts) - 1]
        return last

    cdef bint _add_hash(self, uint64_t h) except -1:
        if self._test_hash(h):
            return False
        return self._last().add_hash(h)

    cdef int add_chunk(self, const uint64_t* hashes, size_t n) except -1:
        cdef uint8_t found[HASH_CHUNK]
        cdef uint64_t fresh[HASH_CHUNK]
        cdef size_t i, m = 0, done = 0, part
        cdef BlockedBloom last = self._last()
        self.test_layers(self.parts[:len(self.parts) - 1], hashes, n, found)
        for i in range(n):
            if not found[i]:
                fresh[m] = hashes[i]
                m += 1
        while done < m:
            last = self._last()
            part = min(<uint64_t>(m - done), self.room - <uint64_t>last.count)
            last.add_hashes(fresh + done, part)
            done += part
        return 0

    def clear(self):
        """Remove every key, and all layers but the first.

        >>> seen = lsmkv.ScalableBloom(100)
        >>> seen.clear()
        """
        self._check()
        self.parts = []
        self._grow()

    def _blob(self):
        self._check()
        layers = self.parts
        parts = [_PARAMETERS.pack(self.first_capacity, self.rate), *(layer.to_bytes() for layer in layers)]
        return encode(_KIND_SCALABLE, 0, self.count, self.hash_seed, bytes(16), pack(parts))

    @staticmethod
    def from_bytes(data):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        >>> seen = lsmkv.ScalableBloom(1000)
        >>> lsmkv.ScalableBloom.from_bytes(seen.to_bytes()) == seen
        True
        """
        blob = decode(expand(data), _KIND_SCALABLE)
        head, *stored = unpack(blob.payload) or [b""]
        if len(head) != _PARAMETERS.size or not 0 < len(stored) <= 64:
            raise refuse("impossible geometry")
        capacity, rate = _PARAMETERS.unpack(head)
        if not 0 < capacity <= _LARGEST_CAPACITY or not 0 < rate < 1:
            raise refuse("impossible geometry")
        return _restored(capacity, rate, blob.seed, [Layer.from_bytes(part) for part in stored])

    @property
    def n_layers(self):
        """The number of layers.

        >>> lsmkv.ScalableBloom(1000).n_layers
        1
        """
        return len(self.parts)

    @property
    def capacity(self):
        """The number of keys until the next layer.

        >>> lsmkv.ScalableBloom(1000).capacity
        1000
        """
        return sum(self.first_capacity << n for n in range(len(self.parts)))

    @property
    def designed_fpr(self):
        """The rate that it stays below.

        >>> lsmkv.ScalableBloom(1000, 0.001).designed_fpr
        0.001
        """
        return self.rate

    @property
    def saturated(self):
        """Whether the expected rate is above the designed one. It grows before that.

        >>> lsmkv.ScalableBloom(1000).saturated
        False
        """
        return self.expected_fpr > self.rate

    def _parameters(self):
        return {"capacity": self.first_capacity, "fpr": self.rate, "seed": self.hash_seed}

    def __repr__(self):
        return f"<ScalableBloom count={self.count} layers={self.n_layers} fpr={self.rate:g}>"


cdef ScalableBloom _restored(capacity, rate, seed, list layers):
    cdef ScalableBloom made = ScalableBloom.__new__(ScalableBloom)
    cdef Py_ssize_t n
    for n in range(len(layers)):
        size = min(capacity << n, _LARGEST_CAPACITY)
        try:
            bits = bits_for_fpr(rate / 2 ** (n + 1))
        except ValueError:
            raise refuse("impossible geometry") from None
        wanted = {"bits_per_key": bits, "k": k_for(bits), "n_blocks": blocks_for(size, bits), "seed": seed}
        if layers[n]._parameters() != wanted:
            raise refuse("impossible geometry")
    made.first_capacity = capacity
    made.rate = rate
    made.hash_seed = seed
    made.room = size
    made.parts = layers
    return made
