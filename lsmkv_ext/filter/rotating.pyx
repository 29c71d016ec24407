"""A Bloom filter that forgets."""

import math
import struct
import time

from libc.stdint cimport uint64_t

from lsmkv_ext.filter.bloom cimport BlockedBloom
from lsmkv_ext.filter.layered cimport LayeredBloom

from lsmkv_ext.filter.bloom import BlockedBloom as Generation
from lsmkv_ext.filter.curve import bits_for_fpr, blocks_for, k_for
from lsmkv_ext.filter.family_format import KIND_ROTATING as _KIND_ROTATING, decode, encode, expand, pack, refuse, unpack
from lsmkv_ext.filter.parameters import LARGEST_CAPACITY as _LARGEST_CAPACITY, checked_capacity, checked_fpr, checked_seed

# capacity, rate, window (0: by count), age of the current generation
_PARAMETERS = struct.Struct("<Qddd")


cdef object _clock_of(clock):
    """A function that returns seconds."""
    if clock is None:
        return time.monotonic
    if callable(clock):
        return clock
    if not hasattr(clock, "now"):
        raise TypeError("clock must be a function that returns seconds, or a ManualClock")
    return lambda: clock.now


cdef class RotatingBloom(LayeredBloom):
    """RotatingBloom(capacity, fpr=None, *, window=None, clock=None, seed=0)\n--\n\n\
    A Bloom filter that forgets old keys. It has two generations: the current one, and the one before.

    With `window`, in seconds, a key is remembered for at least one and at most two windows since it was last added.
    `capacity` is the largest number of keys in a window; with more of them the rate rises, but none is forgotten
    early. Without `window` at least the last `capacity` different keys are remembered, and at most twice as many.
    `fpr` (default 1 %) is the rate of both generations together. `clock` is a function that returns seconds, or a
    `ManualClock`; by default it is time.monotonic. Any number of threads may use it; adds take turns.

    Raises `ValueError` or `TypeError` for a wrong parameter.

    >>> clock = lsmkv.ManualClock(0)
    >>> seen = lsmkv.RotatingBloom(1000, window=60, clock=clock)
    >>> seen.add(b"ada")
    >>> clock.advance(60)
    >>> b"ada" in seen
    True
    >>> clock.advance(60)
    >>> b"ada" in seen
    False
    """

    # GIL-protected: began and latest, with the generations (the current one is the first)
    cdef uint64_t size            # of a generation
    cdef double rate
    cdef double length            # of the window; 0: generations end by count
    cdef double began             # when the current generation began
    cdef double latest            # the clock never runs backwards
    cdef object clock

    def __init__(self, capacity, fpr=None, *, window=None, clock=None, seed=0):
        checked_capacity(capacity)
        rate = checked_fpr(fpr)
        checked_seed(seed)
        clock = _clock_of(clock)
        length = 0 if window is None else float(window)
        if window is not None and not 0 < length < math.inf:
            raise ValueError(f"window must be positive and finite, not {window}")
        now = float(clock())
        generations = [Generation(capacity, rate / 2, seed=seed) for _ in range(2)]
        if self.parts:
            raise TypeError("a RotatingBloom is made once")
        self.size, self.rate, self.length, self.hash_seed = capacity, rate, length, seed
        self.clock = clock
        self.began = self.latest = now
        self.parts = generations

    cdef int _check(self) except -1:
        if not self.parts:
            raise ValueError("this RotatingBloom was not initialized")
        return 0

    cdef int _rotate(self, int generations) except -1:
        """Begins that many generations."""
        empty = [self._empty() for _ in range(min(generations, 2))]
        self.parts = [*empty, *self.parts][:2]
        return 0

    cdef object _empty(self):
        return Generation(self.size, self.rate / 2, seed=self.hash_seed)

    cdef int _prepare(self) except -1:
        """Begins the generation that is due by time."""
        cdef double now
        cdef int ended
        self._check()
        if self.length == 0:
            return 0
        now = self.clock()
        if now > self.latest:
            self.latest = now
        if self.latest - self.began >= self.length:
            ended = <int>min((self.latest - self.began) / self.length, 2.0)
            # Generations follow each other without a gap, or a key would be remembered for three windows.
            self.began = self.latest - math.fmod(self.latest - self.began, self.length)
            if self.latest - self.began >= self.length:      # the window is below the precision of the clock
                self.began = self.latest
            self._rotate(ended)
        return 0

    cdef BlockedBloom _current(self):
        cdef BlockedBloom current = self.parts[0]
        if self.length == 0 and current.count >= self.size:
            self._rotate(1)
            current = self.parts[0]
        return current

    cdef bint _add_hash(self, uint64_t h) except -1:
        self._prepare()
        return self._current().add_hash(h)

    cdef int add_chunk(self, const uint64_t* hashes, size_t n) except -1:
        cdef size_t done = 0, part
        cdef BlockedBloom current
        self._prepare()
        while done < n:
            current = self._current()
            part = n - done
            if self.length == 0:
                part = min(<uint64_t>part, self.size - <uint64_t>current.count)
            current.add_hashes(hashes + done, part)
            done += part
        return 0

    def clear(self):
        """Remove every key.

        >>> seen = lsmkv.RotatingBloom(1000)
        >>> seen.clear()
        """
        self._check()
        self._rotate(2)

    def _blob(self):
        self._prepare()
        parts = self.parts
        head = _PARAMETERS.pack(self.size, self.rate, self.length, self.latest - self.began)
        return encode(
            _KIND_ROTATING, 0, self.count, self.hash_seed, bytes(16), pack([head, *(part.to_bytes() for part in parts)])
        )

    @staticmethod
    def from_bytes(data, *, clock=None):
        """Return the filter that `to_bytes` wrote. Raises `CorruptionError` if the bytes are damaged or incomplete.

        The time between `to_bytes` and `from_bytes` does not count.

        >>> seen = lsmkv.RotatingBloom(1000)
        >>> lsmkv.RotatingBloom.from_bytes(seen.to_bytes()) == seen
        True
        """
        blob = decode(expand(data), _KIND_ROTATING)
        parts = unpack(blob.payload)
        if len(parts) != 3 or len(parts[0]) != _PARAMETERS.size:
            raise refuse("impossible geometry")
        capacity, rate, length, age = _PARAMETERS.unpack(parts[0])
        if not (0 < capacity <= _LARGEST_CAPACITY and 0 < rate < 1 and 0 <= length < math.inf and 0 <= age < math.inf):
            raise refuse("impossible geometry")
        return _restored(capacity, rate, length, age, blob.seed, [Generation.from_bytes(p) for p in parts[1:]], clock)

    @property
    def capacity(self):
        """The number of keys in a generation.

        >>> lsmkv.RotatingBloom(1000).capacity
        1000
        """
        return self.size

    @property
    def window(self):
        """The seconds for which a key is remembered at least; None if generations end by count.

        >>> lsmkv.RotatingBloom(1000, window=60).window
        60.0
        """
        return self.length or None

    @property
    def designed_fpr(self):
        """The false positive rate of two full generations.

        >>> lsmkv.RotatingBloom(1000, 0.001).designed_fpr
        0.001
        """
        return self.rate

    @property
    def saturated(self):
        """Whether a generation holds more keys than it was sized for.

        >>> lsmkv.RotatingBloom(1000).saturated
        False
        """
        return any(part.saturated for part in self._parts())

    def _parameters(self):
        return {"capacity": self.size, "fpr": self.rate, "window": self.window, "seed": self.hash_seed}

    def __repr__(self):
        return f"<RotatingBloom count={self.count} capacity={self.size} window={self.window}>"


cdef RotatingBloom _restored(capacity, rate, length, age, seed, list generations, clock):
    cdef RotatingBloom made = RotatingBloom.__new__(RotatingBloom)
    try:
        bits = bits_for_fpr(rate / 2)
    except ValueError:
        raise refuse("impossible geometry") from None
    wanted = {"bits_per_key": bits, "k": k_for(bits), "n_blocks": blocks_for(capacity, bits), "seed": seed}
    if any(part._parameters() != wanted for part in generations):
        raise refuse("impossible geometry")
    made.clock = _clock_of(clock)
    made.size, made.rate, made.length, made.hash_seed = capacity, rate, length, seed
    made.latest = made.clock()
    made.began = made.latest - age
    made.parts = generations
    return made
