"""The keys, values and operations of a workload, made in chunks before the clock starts.

Everything is a function of a seed and a position: every engine gets the same stream, and what is
read back can be checked without storing what was written. A record is a *number*; its key is that
number in zero-padded decimals; its value is a function of the number and of the *generation* (1..255) that
last wrote it. `Ledger` keeps one generation byte per number, 0 meaning absent.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.math cimport cos, log, pow, sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from array import array

cdef extern from *:
    """
    static inline uint64_t lsmkv_mulhi(uint64_t a, uint64_t b) {
        return (uint64_t)(((unsigned __int128)a * b) >> 64);
    }
    """
    uint64_t lsmkv_mulhi(uint64_t, uint64_t) noexcept nogil

cdef enum:
    PIECE = 100                         # values start on a piece boundary, so each compresses alike
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
    OP_INSERT = 5                       # only inside a mix: becomes a put of the next new number

KINDS = {"sequential": SEQUENTIAL, "uniform": UNIFORM, "unique": UNIQUE, "zipf": ZIPF, "latest": LATEST,
         "power": POWER}
OPS = {"get": 0, "put": OP_PUT, "delete": OP_DELETE, "scan": OP_SCAN, "update": OP_UPDATE, "insert": OP_INSERT}


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    """A bijection on 64 bits that scatters its input well (the finisher of SplitMix64)."""
    x += <uint64_t>0x9E3779B97F4A7C15
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef inline double unit(uint64_t x) noexcept nogil:
    """In (0, 1): never 0, so that logarithms and negative powers are safe."""
    return (<double>(x >> 11) + 0.5) * (1.0 / 9007199254740992.0)


cdef inline double pareto(double u, double theta, double k, double sigma) noexcept nogil:
    return theta - sigma * log(u) if k == 0 else theta + sigma * (pow(u, -k) - 1.0) / k


@cython.final
cdef class Stream:
    """Numbers below `num`, drawn by `kind` from `seed`."""
    cdef int kind
    cdef readonly uint64_t num
    cdef public uint64_t limit          # "latest" counts back from here; grows as records are inserted
    cdef readonly uint64_t position
    cdef uint64_t salt
    cdef double theta, zetan, eta, alpha, second
    cdef double power_a, power_b
    cdef int half_bits

    def __init__(self, kind, uint64_t num, uint64_t seed, *, double theta=0.99, double power_a=0.002312,
                 double power_b=0.3467):
        cdef uint64_t i
        if num == 0:
            raise ValueError("a stream needs at least one number")
        self.kind = KINDS[kind]
        self.num = self.limit = num
        self.salt = mix(seed)
        self.theta = theta
        self.power_a = power_a
        self.power_b = power_b
        self.half_bits = max(1, (int(num - 1).bit_length() + 1) // 2)
        if self.kind == ZIPF or self.kind == LATEST:
            if not 0 < theta < 1:
                raise ValueError(f"zipf exponent {theta} is outside (0, 1)")
            for i in range(num):
                self.zetan += pow(<double>(i + 1), -theta)
            self.second = 1.0 + pow(0.5, theta)
            self.alpha = 1.0 / (1.0 - theta)
            self.eta = (1.0 - pow(2.0 / num, 1.0 - theta)) / (1.0 - min(self.second, self.zetan) / self.zetan + 1e-12)

    cdef uint64_t permuted(self, uint64_t i) noexcept nogil:
        """The i-th of a permutation of 0..num-1: a four-round Feistel network, walked until it lands inside."""
        cdef uint64_t mask = ((<uint64_t>1) << self.half_bits) - 1
        cdef uint64_t left, right, x = i
        cdef int r
        while True:
            left = x >> self.half_bits
            right = x & mask
            for r in range(4):
                left, right = right, left ^ (mix(self.salt + right * 4 + r) & mask)
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
        if self.kind == SEQUENTIAL:
            return i % self.num
        if self.kind == UNIQUE:
            return self.permuted(i % self.num)
        random = mix(self.salt + i)
        if self.kind == UNIFORM:
            return lsmkv_mulhi(random, self.num)
        if self.kind == ZIPF:           # popular records lie scattered over the key space
            return lsmkv_mulhi(mix(self.rank(unit(random))), self.num)
        if self.kind == LATEST:
            return self.limit - 1 - self.rank(unit(random))
        return lsmkv_mulhi(mix(<uint64_t>pow(unit(random) / self.power_a, 1.0 / self.power_b)), self.num)

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
cdef class Mix:
    """Operations drawn by weight; each on a number of `stream`, an insert on the next new one.

    `scan` is how long scans are: ("uniform", most) or ("pareto", theta, k, sigma, most).
    """
    cdef Stream stream
    cdef double edges[6]
    cdef uint64_t salt
    cdef uint64_t position
    cdef uint64_t scan_most
    cdef double scan_theta, scan_k, scan_sigma
    cdef bint scan_pareto

    def __init__(self, Stream stream not None, weights, uint64_t seed, scan=("uniform", 100)):
        cdef double edge = 0
        unknown = set(weights) - set(OPS)
        total = sum(weights.values())
        if unknown or total <= 0:
            raise ValueError(f"operation weights {weights!r}")
        self.stream = stream
        self.salt = mix(seed ^ <uint64_t>0x6D6978)
        for name, code in OPS.items():
            edge += weights.get(name, 0) / total
            self.edges[<int>code] = edge
        self.scan_pareto = scan[0] == "pareto"
        self.scan_most = scan[len(scan) - 1]
        if self.scan_pareto:
            self.scan_theta, self.scan_k, self.scan_sigma = scan[1:4]

    cdef uint32_t scan_length(self, uint64_t random) noexcept nogil:
        if self.scan_pareto:
            return <uint32_t>(<uint64_t>min(pareto(unit(random), self.scan_theta, self.scan_k, self.scan_sigma), 1e15)
                              % self.scan_most)
        return <uint32_t>(1 + lsmkv_mulhi(random, self.scan_most))

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
            u = unit(mix(self.salt + self.position))
            op = 0
            while op < OP_INSERT and u >= self.edges[op]:
                op += 1
            length[i] = self.scan_length(mix(self.salt ^ (self.position + 1))) if op == OP_SCAN else 1
            if op == OP_INSERT:
                op = OP_PUT
                number[i] = self.stream.limit
                self.stream.limit += 1
            else:
                number[i] = self.stream.at(self.stream.position)
                self.stream.position += 1
            code[i] = <uint8_t>op
            self.position += 1
        return codes, numbers, lengths


def make_keys(const uint64_t[::1] numbers not None, size_t key_size, bytes suffix=b""):
    """One key per number: `key_size` decimal digits, then `suffix`."""
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
cdef class Values:
    """Values cut from one pool of text whose pieces compress to `compression_ratio`."""
    cdef bytes pool
    cdef uint64_t salt
    cdef uint64_t low, high             # sizes, both included
    cdef int shape                      # 0 uniform (fixed when low == high), 1 normal, 2 pareto
    cdef double theta, k, sigma

    def __init__(self, uint64_t seed, sizes=("fixed", 100), double compression_ratio=0.5):
        kind, args = sizes[0], sizes[1:]
        if kind == "pareto":
            self.shape = 2
            self.theta, self.k, self.sigma = args
            self.low, self.high = 1, MAX_VALUE
        else:
            self.shape = {"fixed": 0, "uniform": 0, "normal": 1}[kind]
            self.low, self.high = args[0], args[len(args) - 1]
        if not 0 <= self.low <= self.high <= (1 << 28):
            raise ValueError(f"value sizes {sizes!r}")
        if not 0 < compression_ratio <= 1:
            raise ValueError(f"compression_ratio {compression_ratio} is outside (0, 1]")
        self.salt = mix(seed ^ <uint64_t>0x76616C)
        self.pool = self.make_pool(max(1, int(PIECE * compression_ratio)))

    cdef bytes make_pool(self, size_t raw):
        cdef size_t size = POOL_PIECES * PIECE + self.high
        cdef size_t i, j
        cdef bytes pool = PyBytes_FromStringAndSize(NULL, size)
        cdef char *text = PyBytes_AS_STRING(pool)
        for i in range(0, size, PIECE):
            for j in range(i, min(i + PIECE, size)):
                text[j] = <char>(32 + mix(self.salt + j) % 95) if j - i < raw else text[j - raw]
        return pool

    cdef size_t size_of(self, uint64_t h) noexcept nogil:
        cdef double wish
        if self.low == self.high:
            return self.low
        h = mix(h)
        if self.shape == 0:
            return self.low + lsmkv_mulhi(h, self.high - self.low + 1)
        if self.shape == 1:
            wish = (self.low + self.high) / 2.0 + (self.high - self.low) / 6.0 * (
                sqrt(-2.0 * log(unit(h))) * cos(6.283185307179586 * unit(mix(h))))
        else:
            wish = pareto(unit(h), self.theta, self.k, self.sigma)
        return <size_t>min(max(wish, <double>self.low), <double>self.high)

    cdef bytes cut(self, uint64_t number, uint8_t generation):
        cdef uint64_t h = mix(self.salt + number * 256 + generation)
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.pool) + lsmkv_mulhi(h, POOL_PIECES) * PIECE,
                                         self.size_of(h))

    def one(self, uint64_t number, uint8_t generation):
        return self.cut(number, generation)

    def make(self, const uint64_t[::1] numbers not None, uint8_t generation):
        cdef size_t i
        cdef list values = [None] * numbers.shape[0]
        for i in range(<size_t>numbers.shape[0]):
            values[i] = self.cut(numbers[i], generation)
        return values


@cython.final
cdef class Ledger:
    """What must be in the database: the generation that last wrote each number, 0 if it is absent."""
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

    def play(self, const uint8_t[::1] codes not None, const uint64_t[::1] numbers not None, uint8_t generation):
        """Applies the writes among the operations; returns what each operation finds just before it runs."""
        cdef size_t i, n = numbers.shape[0]
        if <size_t>codes.shape[0] != n:
            raise ValueError("codes and numbers differ in length")
        wanted = bytearray(n)
        cdef uint8_t[::1] out = wanted
        for i in range(n):
            if numbers[i] >= self.capacity:
                raise IndexError(f"record {numbers[i]} is outside the ledger of {self.capacity}")
            out[i] = self.generations[numbers[i]]
            if codes[i] == OP_PUT or codes[i] == OP_UPDATE:
                self.store(numbers[i], generation)
            elif codes[i] == OP_DELETE:
                self.store(numbers[i], 0)
        return wanted

    def generation(self, size_t number):
        return self.generations[number] if number < self.capacity else 0

    def following(self, size_t number, Py_ssize_t step=1):
        """The first present number at or after `number` (at or before it if `step` is -1), or None."""
        cdef Py_ssize_t at = min(number, self.capacity - 1) if step < 0 else number
        while 0 <= at < <Py_ssize_t>self.capacity:
            if self.generations[at]:
                return at
            at += step
        return None

    def skip(self, size_t number, size_t count, Py_ssize_t step=1):
        """The present number `count` present numbers after the present `number`, or None."""
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
