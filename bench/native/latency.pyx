"""The measured loop: a C loop that calls an engine for each key, and a histogram of the latencies.

Recording a latency costs 10 to 20 ns here; in Python it would cost more than the operation.
All engines run in the same loop, so its overhead is the same for all.
"""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.math cimport sqrt
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

include "clock.pxi"

cdef extern from *:
    """
    #if defined(__x86_64__)
    #include <x86intrin.h>
    static inline uint64_t lsmkv_ticks(void) { return __rdtsc(); }
    #define LSMKV_TSC 1
    #else
    static inline uint64_t lsmkv_ticks(void) { return lsmkv_clock_ns(); }
    #define LSMKV_TSC 0
    #endif
    """
    uint64_t lsmkv_ticks() noexcept nogil
    const bint LSMKV_TSC
    int __builtin_clzll(unsigned long long) noexcept nogil

cdef extern from "Python.h":
    object PyObject_Vectorcall(object fn, PyObject **args, size_t nargs, PyObject *names)
    size_t PY_VECTORCALL_ARGUMENTS_OFFSET
    PyObject *PyIter_Next(object) except? NULL
    void Py_DECREF(PyObject *)

cdef enum:
    SUB_BITS = 5                        # 32 buckets per power of two: a bucket is at most 3.2 % wide
    SUB_COUNT = 32
    BUCKETS = 1920                      # covers every uint64 value

cdef double ns_per_tick = 1.0

# Operation codes: made by `workload`, executed by `Driver.run`.
cdef enum:
    OP_GET = 0
    OP_PUT = 1
    OP_DELETE = 2
    OP_SCAN = 3
    OP_UPDATE = 4                       # read, then write the same key


# A C loop never checks whether another thread waits for the GIL. Entering a Python function does,
# and hands the GIL over just as the interpreter's loop would.
cdef object switch_point = eval("lambda: None")
cdef enum:
    SWITCH_NS = 20000


cdef double measure_tick() noexcept nogil:
    """Nanoseconds per tick of the time stamp counter, over 20 ms. Preemption does no harm: both clocks
    are read together."""
    cdef uint64_t start_ns = lsmkv_clock_ns(), start = lsmkv_ticks(), now = start_ns
    while now - start_ns < 20000000:
        now = lsmkv_clock_ns()
    return <double>(now - start_ns) / <double>(lsmkv_ticks() - start)


if LSMKV_TSC:
    ns_per_tick = measure_tick()


cdef inline uint64_t to_ns(uint64_t ticks) noexcept nogil:
    return <uint64_t>(<double>ticks * ns_per_tick)


cdef inline int bucket_of(uint64_t ns) noexcept nogil:
    cdef int shift
    if ns < SUB_COUNT:
        return <int>ns
    shift = 63 - __builtin_clzll(ns) - SUB_BITS
    return <int>(((shift + 1) << SUB_BITS) + ((ns >> shift) & (SUB_COUNT - 1)))


cdef inline uint64_t bucket_low(int bucket) noexcept nogil:
    if bucket < SUB_COUNT:
        return bucket
    return (<uint64_t>(SUB_COUNT + (bucket & (SUB_COUNT - 1)))) << ((bucket >> SUB_BITS) - 1)


cdef inline uint64_t bucket_width(int bucket) noexcept nogil:
    return 1 if bucket < SUB_COUNT else (<uint64_t>1) << ((bucket >> SUB_BITS) - 1)


@cython.final
cdef class Histogram:
    """Latencies in nanoseconds, in log-scaled buckets. Not thread-safe: one thread records, and others merge
    when it is done."""
    cdef uint64_t counts[BUCKETS]
    cdef readonly uint64_t count
    cdef uint64_t least
    cdef uint64_t most
    cdef double total                   # exact sum and sum of squares, in ns
    cdef double squares

    def __cinit__(self):
        self.clear()

    def clear(self):
        memset(self.counts, 0, sizeof(self.counts))
        self.count = 0
        self.least = <uint64_t>-1
        self.most = 0
        self.total = 0
        self.squares = 0

    cdef void add(self, uint64_t ns) noexcept nogil:
        self.counts[bucket_of(ns)] += 1
        self.count += 1
        self.total += <double>ns
        self.squares += <double>ns * <double>ns
        if ns < self.least:
            self.least = ns
        if ns > self.most:
            self.most = ns

    def record(self, uint64_t ns):
        self.add(ns)

    def merge(self, Histogram other not None):
        cdef int i
        for i in range(BUCKETS):
            self.counts[i] += other.counts[i]
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    @property
    def min(self):
        return self.least if self.count else 0

    @property
    def max(self):
        return self.most

    @property
    def mean(self):
        return self.total / self.count if self.count else 0.0

    @property
    def stddev(self):
        if self.count == 0:
            return 0.0
        mean = self.total / self.count
        return sqrt(max(0.0, self.squares / self.count - mean * mean))

    def percentile(self, double percent):
        """The `percent`-th percentile, exact to its bucket."""
        cdef uint64_t below = 0
        cdef double rank, share
        cdef int i
        if not 0 <= percent <= 100:
            raise ValueError(f"percentile {percent} is outside 0..100")
        if self.count == 0:
            return 0.0
        rank = max(1.0, percent / 100.0 * self.count)
        for i in range(BUCKETS):
            if self.counts[i] and below + self.counts[i] >= rank:
                share = (rank - below) / self.counts[i]
                value = bucket_low(i) + share * (bucket_width(i) - 1)
                return min(max(value, <double>self.least), <double>self.most)
            below += self.counts[i]
        return <double>self.most

    def above(self, uint64_t ns):
        """(count, sum) of the values in buckets that start at or above `ns`; the sum is approximate."""
        cdef uint64_t many = 0
        cdef double spent = 0
        cdef int i
        for i in range(bucket_of(ns), BUCKETS):
            if self.counts[i] and bucket_low(i) >= ns:
                many += self.counts[i]
                spent += <double>self.counts[i] * (bucket_low(i) + bucket_width(i) / 2.0)
        return many, spent

    def buckets(self):
        """Non-empty buckets as (low, high, count), low <= value < high."""
        cdef int i
        return [(bucket_low(i), bucket_low(i) + bucket_width(i), self.counts[i])
                for i in range(BUCKETS) if self.counts[i]]

    def to_dict(self):
        return {
            "count": self.count, "min": self.min, "max": self.most, "sum": self.total, "squares": self.squares,
            "buckets": [[low, many] for low, _, many in self.buckets()],
        }

    @staticmethod
    def from_dict(data):
        cdef Histogram h = Histogram()
        cdef uint64_t seen = 0
        for low, many in data["buckets"]:
            h.counts[bucket_of(low)] += many
            seen += many
        if seen != data["count"]:
            raise ValueError(f"histogram has count {data['count']}, but its buckets hold {seen}")
        h.count = seen
        h.total = data["sum"]
        h.squares = data["squares"]
        h.most = data["max"]
        if seen:
            h.least = data["min"]
        return h


@cython.final
cdef class Driver:
    """Calls an engine's operations for a chunk of keys and times each call.

    Without `hist` it times only the chunk as a whole.
    """
    cdef object get, put, delete, scan
    cdef readonly Histogram hist
    cdef uint64_t check_every           # return every n-th result for verification; 0 returns none
    cdef uint64_t switch_ticks          # offer the GIL this often; 0 never
    cdef uint64_t switch_due
    cdef readonly uint64_t ops          # operations since construction
    cdef readonly uint64_t found        # reads that returned a value
    cdef readonly uint64_t bytes_read
    cdef readonly uint64_t ns           # wall time in the loops
    cdef readonly uint64_t cpu_ns       # CPU time in the loops

    def __init__(self, get=None, put=None, delete=None, scan=None, *, Histogram hist=None,
                 uint64_t check_every=0, bint threaded=False):
        self.get = get
        self.put = put
        self.delete = delete
        self.scan = scan
        self.hist = hist
        self.check_every = check_every
        self.switch_ticks = <uint64_t>(SWITCH_NS / ns_per_tick) if threaded else 0

    cdef int offer_gil(self, uint64_t now) except -1:
        if now >= self.switch_due:
            switch_point()
            self.switch_due = lsmkv_ticks() + self.switch_ticks
        return 0

    cdef inline void count_read(self, object result) noexcept:
        if result is not None:
            self.found += 1
            if PyBytes_CheckExact(result):
                self.bytes_read += PyBytes_GET_SIZE(result)

    cdef object scan_from(self, object key, uint64_t length, bint keep):
        cdef PyObject *args[2]
        cdef PyObject *item
        cdef list kept = [] if keep else None
        args[0] = NULL
        args[1] = <PyObject *>key
        iterator = PyObject_Vectorcall(self.scan, &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        while length:
            item = PyIter_Next(iterator)
            if item == NULL:
                break
            self.found += 1
            self.bytes_read += item_bytes(item)
            if keep:
                kept.append(<object>item)
            Py_DECREF(item)
            length -= 1
        return kept

    cdef object execute(self, int code, object key, object value, uint64_t length, bint keep):
        cdef PyObject *args[3]
        args[0] = NULL                  # PY_VECTORCALL_ARGUMENTS_OFFSET: a bound method puts `self` here
        args[1] = <PyObject *>key
        if code == OP_GET:
            result = PyObject_Vectorcall(self.get, &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
            self.count_read(result)
            return result
        if code == OP_DELETE:
            return PyObject_Vectorcall(self.delete, &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        if code == OP_SCAN:
            return self.scan_from(key, length, keep)
        result = None
        if code == OP_UPDATE:
            result = PyObject_Vectorcall(self.get, &args[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
            self.count_read(result)
            args[0] = NULL
            args[1] = <PyObject *>key
        args[2] = <PyObject *>value
        PyObject_Vectorcall(self.put, &args[1], 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
        return result

    def run(self, const uint8_t[::1] codes not None, list keys not None, list values=None,
            const uint32_t[::1] lengths=None):
        """Run operation `codes[i]` on `keys[i]` for each i. Returns [(i, result)] for every `check_every`-th."""
        cdef size_t i, n = PyList_GET_SIZE(keys)
        cdef uint64_t start, before, spent
        cdef bint keep
        cdef object value = None
        cdef list kept = []
        if <size_t>codes.shape[0] != n or (values is not None and <size_t>PyList_GET_SIZE(values) != n):
            raise ValueError("codes, keys and values differ in length")
        if lengths is not None and <size_t>lengths.shape[0] != n:
            raise ValueError("codes and lengths differ in length")
        spent = lsmkv_thread_ns()
        start = before = lsmkv_ticks()
        for i in range(n):
            keep = self.check_every != 0 and (self.ops + i) % self.check_every == 0
            if values is not None:
                value = <object>PyList_GET_ITEM(values, i)
            result = self.execute(codes[i], <object>PyList_GET_ITEM(keys, i), value,
                                  lengths[i] if lengths is not None else 1, keep)
            if keep:
                kept.append((i, result))
            result = None               # freeing the value is part of the measured time
            before = lap(self, before)
        stop_clocks(self, start, spent)
        self.ops += n
        return kept

    def each(self, fn, list args not None, uint64_t weight=1):
        """Call `fn(arg)` for each of `args`; one call counts as `weight` operations."""
        cdef PyObject *argv[2]
        cdef size_t i, n = PyList_GET_SIZE(args)
        cdef uint64_t start, before, spent
        cdef list kept = []
        spent = lsmkv_thread_ns()
        start = before = lsmkv_ticks()
        for i in range(n):
            argv[0] = NULL
            argv[1] = PyList_GET_ITEM(args, i)
            result = PyObject_Vectorcall(fn, &argv[1], 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)
            if self.check_every != 0 and (self.ops + i * weight) % self.check_every < weight:
                kept.append((i, result))
            result = None
            before = lap(self, before)
        stop_clocks(self, start, spent)
        self.ops += n * weight
        return kept

    def iterate(self, iterator, uint64_t limit):
        """Take up to `limit` items. Returns (number taken, [(i, item)] for every `check_every`-th)."""
        cdef uint64_t i = 0, start, before, spent
        cdef PyObject *item
        cdef list kept = []
        spent = lsmkv_thread_ns()
        start = before = lsmkv_ticks()
        while i < limit:
            item = PyIter_Next(iterator)
            if item == NULL:
                break
            self.bytes_read += item_bytes(item)
            if self.check_every != 0 and (self.ops + i) % self.check_every == 0:
                kept.append((i, <object>item))
            Py_DECREF(item)
            i += 1
            before = lap(self, before)
        stop_clocks(self, start, spent)
        self.ops += i
        self.found += i
        return i, kept


cdef inline uint64_t lap(Driver d, uint64_t before) except? 0:
    """Record the time since `before`, offer the GIL if it is due, and return the next `before`."""
    cdef uint64_t now
    if d.hist is None:
        if d.switch_ticks:
            d.offer_gil(lsmkv_ticks())
        return before
    now = lsmkv_ticks()
    d.hist.add(to_ns(now - before))
    if d.switch_ticks:
        d.offer_gil(now)
    return now


cdef inline void stop_clocks(Driver d, uint64_t start, uint64_t spent) noexcept:
    d.ns += to_ns(lsmkv_ticks() - start)
    d.cpu_ns += lsmkv_thread_ns() - spent


cdef inline uint64_t item_bytes(PyObject *item) noexcept:
    """Bytes in a (key, value) pair; 0 for anything else."""
    cdef object pair = <object>item
    cdef PyObject *key
    cdef PyObject *value
    if not PyTuple_CheckExact(pair) or PyTuple_GET_SIZE(pair) != 2:
        return 0
    key = PyTuple_GET_ITEM(pair, 0)
    value = PyTuple_GET_ITEM(pair, 1)
    if not PyBytes_CheckExact(<object>key) or not PyBytes_CheckExact(<object>value):
        return 0
    return PyBytes_GET_SIZE(<object>key) + PyBytes_GET_SIZE(<object>value)


def timer_cost(size_t rounds=200000):
    """Nanoseconds that recording a latency adds to an operation: the best of five rounds."""
    cdef uint64_t least_plain = 0, least_timed = 0
    codes = bytes(rounds)
    keys = [b""] * <Py_ssize_t>rounds
    nothing = {}.get
    for _ in range(5):
        plain = Driver(nothing)
        timed = Driver(nothing, hist=Histogram())
        plain.run(codes, keys)
        timed.run(codes, keys)
        if least_plain == 0 or plain.ns < least_plain:
            least_plain = plain.ns
        if least_timed == 0 or timed.ns < least_timed:
            least_timed = timed.ns
    return max(0.0, (<double>least_timed - <double>least_plain) / rounds)


def clock_name():
    return "tsc" if LSMKV_TSC else "clock_monotonic"
