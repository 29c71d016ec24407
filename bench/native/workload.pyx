"""Keys, values and operations of a workload, generated in chunks outside the measured time.

Everything is a function of a seed and a position. All engines get the same operations, and answers can be
verified without storing what was written. A record is a *number*. Its key is the number in zero-padded
decimals. Its value is a function of the number and of the *generation* (1..255) that last wrote it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport cos, log, pow, sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from array import array

include "random.pxi"

cdef enum:
    PIECE = 100                         # values start at a piece boundary, so all compress equally
    POOL_PIECES = 40000
    MAX_VALUE = 1 << 20
    SEQUENTIAL = 0
    UNIFORM = 1
    UNIQUE = 2
    ZIPF = 3
    LATEST = 4
    POWER = 5
    OP_PUT = 1
    OP_SCAN = 3
    OP_UPDATE = 4
    OP_DELETE = 2
    OP_INSERT = 5                       # in a mix only: a put of the next new number

DISTRIBUTIONS = {"sequential": SEQUENTIAL, "uniform": UNIFORM, "unique": UNIQUE, "zipf": ZIPF, "latest": LATEST,
                 "power": POWER}
OPS = {"get": 0, "put": OP_PUT, "delete": OP_DELETE, "scan": OP_SCAN, "update": OP_UPDATE, "insert": OP_INSERT}


cdef inline double unit(uint64_t x) noexcept nogil:
    """In (0, 1), never 0: logarithms and negative powers are safe."""
    return (<double>(x >> 11) + 0.5) * (1.0 / 9007199254740992.0)


cdef inline double pareto(double u, double theta, double k, double sigma) noexcept nogil:
    return theta - sigma * log(u) if k == 0 else theta + sigma * (pow(u, -k) - 1.0) / k


@cython.final
cdef class KeyGenerator:
    """Record numbers below `num`, drawn from a distribution."""
    cdef int distribution
    cdef readonly uint64_t num
    cdef public uint64_t limit          # "latest" counts back from here; inserts increase it
    cdef readonly uint64_t position
    cdef uint64_t salt
    cdef double theta, zetan, eta, alpha, second
    cdef double power_a, power_b
    cdef int half_bits

    def __init__(self, distribution, uint64_t num, uint64_t seed, *, double theta=0.99, double power_a=0.002312,
                 double power_b=0.3467):
        cdef uint64_t i
        if num == 0:
            raise ValueError("num must be at least 1")
        self.distribution = DISTRIBUTIONS[distribution]
        self.num = self.limit = num
        self.salt = splitmix(seed)
        self.theta = theta
        self.power_a = power_a
        self.power_b = power_b
        self.half_bits = max(1, (int(num - 1).bit_length() + 1) // 2)
        if self.distribution == ZIPF or self.distribution == LATEST:
            if not 0 < theta < 1:
                raise ValueError(f"zipf exponent {theta} is outside (0, 1)")
            for i in range(num):
                self.zetan += pow(<double>(i + 1), -theta)
            self.second = 1.0 + pow(0.5, theta)
            self.alpha = 1.0 / (1.0 - theta)
            self.eta = (1.0 - pow(2.0 / num, 1.0 - theta)) / (1.0 - min(self.second, self.zetan) / self.zetan + 1e-12)

    cdef uint64_t permuted(self, uint64_t i) noexcept nogil:
        """The i-th number of a permutation of 0..num-1: a four-round Feistel network with cycle walking."""
        cdef uint64_t mask = ((<uint64_t>1) << self.half_bits) - 1
        cdef uint64_t left, right, x = i
        cdef int r
        while True:
            left = x >> self.half_bits
            right = x & mask
            for r in range(4):
                left, right = right, left ^ (splitmix(self.salt + right * 4 + r) & mask)
            x = (left << self.half_bits) | right
            if x < self.num:
                return x

    cdef uint64_t rank(self, double u) noexcept nogil:
        """A zipfian rank, 0 the most likely (Gray et al., "Quickly generating billion-record ... databases")."""
        cdef double uz = u * self.zetan
        cdef uint64_t r
        if uz < 1.0:
            return 0
        if uz < self.second:
            return min(<uint64_t>1, self.num - 1)
        r = <uint64_t>(<double>self.num * pow(self.eta * u - self.eta + 1.0, self.alpha))
        return min(r, self.num - 1)

    cdef uint64_t at(self, uint64_t i) noexcept nogil:
        cdef uint64_t random
        if self.distribution == SEQUENTIAL:
            return i % self.num
        if self.distribution == UNIQUE:
            return self.permuted(i % self.num)
        random = splitmix(self.salt + i)
        if self.distribution == UNIFORM:
            return lsmkv_mulhi(random, self.num)
        if self.distribution == ZIPF:   # popular records are scattered over the key space
            return lsmkv_mulhi(splitmix(self.rank(unit(random))), self.num)
        if self.distribution == LATEST:
            return self.limit - 1 - self.rank(unit(random))
        return lsmkv_mulhi(splitmix(<uint64_t>pow(unit(random) / self.power_a, 1.0 / self.power_b)), self.num)

    def take(self, size_t count):
        """The next `count` numbers."""
        numbers = array("Q", bytes(8 * count))
        cdef uint64_t[::1] out = numbers
        cdef size_t i
        for i in range(count):
            out[i] = self.at(self.position + i)
        self.position += count
        return numbers


@cython.final
cdef class OperationMix:
    """Operations drawn by weight. An insert takes the next new number, the others a number from `keys`.

    `scan` is the distribution of scan lengths: ("uniform", max) or ("pareto", theta, k, sigma, max).
    """
    cdef KeyGenerator keys
    cdef double edges[6]
    cdef uint64_t salt
    cdef uint64_t position
    cdef uint64_t scan_max
    cdef double scan_theta, scan_k, scan_sigma
    cdef bint scan_pareto

    def __init__(self, KeyGenerator keys not None, weights, uint64_t seed, scan=("uniform", 100)):
        cdef double edge = 0
        unknown = set(weights) - set(OPS)
        total = sum(weights.values())
        if unknown or total <= 0:
            raise ValueError(f"invalid operation weights {weights!r}")
        self.keys = keys
        self.salt = splitmix(seed ^ <uint64_t>0x6D6978)
        for name, code in OPS.items():
            edge += weights.get(name, 0) / total
            self.edges[<int>code] = edge
        self.scan_pareto = scan[0] == "pareto"
        self.scan_max = scan[len(scan) - 1]
        if self.scan_pareto:
            self.scan_theta, self.scan_k, self.scan_sigma = scan[1:4]

    cdef uint32_t scan_length(self, uint64_t random) noexcept nogil:
        if self.scan_pareto:
            return <uint32_t>(<uint64_t>min(pareto(unit(random), self.scan_theta, self.scan_k, self.scan_sigma), 1e15)
                              % self.scan_max)
        return <uint32_t>(1 + lsmkv_mulhi(random, self.scan_max))

    def take(self, size_t count):
        """(codes, numbers, lengths) of the next `count` operations."""
        codes = bytearray(count)
        numbers = array("Q", bytes(8 * count))
        lengths = array("I", bytes(4 * count))
        cdef uint8_t[::1] code = codes
        cdef uint64_t[::1] number = numbers
        cdef uint32_t[::1] length = lengths
        cdef size_t i
        cdef int op
        cdef double u
        for i in range(count):
            u = unit(splitmix(self.salt + self.position))
            op = 0
            while op < OP_INSERT and u >= self.edges[op]:
                op += 1
            length[i] = self.scan_length(splitmix(self.salt ^ (self.position + 1))) if op == OP_SCAN else 1
            if op == OP_INSERT:
                op = OP_PUT
                number[i] = self.keys.limit
                self.keys.limit += 1
            else:
                number[i] = self.keys.at(self.keys.position)
                self.keys.position += 1
            code[i] = <uint8_t>op
            self.position += 1
        return codes, numbers, lengths


def make_keys(const uint64_t[::1] numbers not None, size_t key_size, bytes suffix=b""):
    """Keys of `key_size` decimal digits, followed by `suffix`."""
    cdef size_t i, extra = len(suffix)
    cdef Py_ssize_t d
    cdef uint64_t n
    cdef char *text
    cdef const char *tail = PyBytes_AS_STRING(suffix)
    cdef list keys = [None] * numbers.shape[0]
    for i in range(<size_t>numbers.shape[0]):
        n = numbers[i]
        key = PyBytes_FromStringAndSize(NULL, key_size + extra)
        text = PyBytes_AS_STRING(key)
        for d in range(<Py_ssize_t>key_size - 1, -1, -1):
            text[d] = <char>(c'0' + n % 10)
            n //= 10
        if n:
            raise ValueError(f"key_size {key_size} is too small for record {numbers[i]}")
        memcpy(text + key_size, tail, extra)
        keys[i] = key
    return keys


@cython.final
cdef class ValueGenerator:
    """Values cut from a pool of text whose pieces compress to `compression_ratio`, or from a pool of pieces that is given."""
    cdef bytes pool
    cdef size_t piece, pieces
    cdef uint64_t salt
    cdef uint64_t low, high             # smallest and largest size
    cdef int shape                      # 0 uniform (fixed when low == high), 1 normal, 2 pareto
    cdef double theta, k, sigma

    def __init__(self, uint64_t seed, sizes=("fixed", 100), double compression_ratio=0.5, bytes pool=None, size_t piece=PIECE):
        kind, args = sizes[0], sizes[1:]
        if kind == "pareto":
            self.shape = 2
            self.theta, self.k, self.sigma = args
            self.low, self.high = 1, MAX_VALUE
        else:
            self.shape = {"fixed": 0, "uniform": 0, "normal": 1}[kind]
            self.low, self.high = args[0], args[len(args) - 1]
        if not 0 <= self.low <= self.high <= (1 << 28):
            raise ValueError(f"invalid value sizes {sizes!r}")
        if not 0 < compression_ratio <= 1:
            raise ValueError(f"compression_ratio {compression_ratio} is outside (0, 1]")
        self.salt = splitmix(seed ^ <uint64_t>0x76616C)
        self.piece = piece
        self.pool = self.make_pool(max(1, int(PIECE * compression_ratio))) if pool is None else pool
        if <size_t>len(self.pool) < self.high + piece:
            raise ValueError("the pool is too small for the values")
        self.pieces = min(<size_t>POOL_PIECES, (len(self.pool) - self.high) // piece)

    cdef bytes make_pool(self, size_t raw):
        cdef size_t size = POOL_PIECES * PIECE + self.high
        cdef size_t i, j
        cdef bytes pool = PyBytes_FromStringAndSize(NULL, size)
        cdef char *text = PyBytes_AS_STRING(pool)
        for i in range(0, size, PIECE):
            for j in range(i, min(i + PIECE, size)):
                text[j] = <char>(32 + splitmix(self.salt + j) % 95) if j - i < raw else text[j - raw]
        return pool

    cdef size_t size_of(self, uint64_t h) noexcept nogil:
        cdef double wish
        if self.low == self.high:
            return self.low
        h = splitmix(h)
        if self.shape == 0:
            return self.low + lsmkv_mulhi(h, self.high - self.low + 1)
        if self.shape == 1:
            wish = (self.low + self.high) / 2.0 + (self.high - self.low) / 6.0 * (
                sqrt(-2.0 * log(unit(h))) * cos(6.283185307179586 * unit(splitmix(h))))
        else:
            wish = pareto(unit(h), self.theta, self.k, self.sigma)
        return <size_t>min(max(wish, <double>self.low), <double>self.high)

    cdef bytes cut(self, uint64_t number, uint8_t generation):
        cdef uint64_t h = splitmix(self.salt + number * 256 + generation)
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.pool) + lsmkv_mulhi(h, self.pieces) * self.piece,
                                         self.size_of(h))

    def value(self, uint64_t number, uint8_t generation):
        return self.cut(number, generation)

    def values(self, const uint64_t[::1] numbers not None, uint8_t generation):
        cdef size_t i
        cdef list values = [None] * numbers.shape[0]
        for i in range(<size_t>numbers.shape[0]):
            values[i] = self.cut(numbers[i], generation)
        return values


@cython.final
cdef class ExpectedState:
    """The expected contents of the database: for each number the generation that last wrote it, 0 if absent."""
    cdef uint8_t *generations
    cdef readonly size_t capacity
    cdef readonly size_t present

    def __cinit__(self):
        self.generations = NULL

    def __init__(self, size_t capacity):
        self.grow(capacity)

    def __dealloc__(self):
        free(self.generations)

    def grow(self, size_t capacity):
        cdef uint8_t *bigger
        if capacity <= self.capacity:
            return
        bigger = <uint8_t *>realloc(self.generations, capacity)
        if bigger == NULL:
            raise MemoryError()
        memset(bigger + self.capacity, 0, capacity - self.capacity)
        self.generations = bigger
        self.capacity = capacity

    def clear(self):
        memset(self.generations, 0, self.capacity)
        self.present = 0

    cdef inline void store(self, uint64_t number, uint8_t generation) noexcept nogil:
        self.present += (generation != 0) - (self.generations[number] != 0)
        self.generations[number] = generation

    def apply(self, const uint8_t[::1] codes not None, const uint64_t[::1] numbers not None, uint8_t generation):
        """Apply the writes. Returns the generation that each operation finds just before it runs."""
        cdef size_t i, n = numbers.shape[0]
        if <size_t>codes.shape[0] != n:
            raise ValueError("codes and numbers differ in length")
        expected = bytearray(n)
        cdef uint8_t[::1] out = expected
        for i in range(n):
            if numbers[i] >= self.capacity:
                raise IndexError(f"record {numbers[i]} is beyond the capacity of {self.capacity}")
            out[i] = self.generations[numbers[i]]
            if codes[i] == OP_PUT or codes[i] == OP_UPDATE:
                self.store(numbers[i], generation)
            elif codes[i] == OP_DELETE:
                self.store(numbers[i], 0)
        return expected

    def generation(self, size_t number):
        return self.generations[number] if number < self.capacity else 0

    def next_present(self, size_t number, Py_ssize_t step=1):
        """The first present number at or after `number` (`step` -1: at or before it), or None."""
        cdef Py_ssize_t at = min(number, self.capacity - 1) if step < 0 else number
        while 0 <= at < <Py_ssize_t>self.capacity:
            if self.generations[at]:
                return at
            at += step
        return None

    def advance(self, size_t number, size_t count, Py_ssize_t step=1):
        """The present number `count` places after the present `number`, or None."""
        cdef Py_ssize_t at = number
        while 0 <= at < <Py_ssize_t>self.capacity:
            if self.generations[at]:
                if count == 0:
                    return at
                count -= 1
            at += step
        return None

    def to_bytes(self):
        return PyBytes_FromStringAndSize(<char *>self.generations, self.capacity)

    def load(self, bytes data not None):
        cdef size_t i
        self.grow(len(data))
        self.clear()
        memcpy(self.generations, PyBytes_AS_STRING(data), len(data))
        for i in range(self.capacity):
            self.present += self.generations[i] != 0
