from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from lsmkv_ext.batch cimport OP_DELETE, OP_PUT, WriteBatch, batch_add, refuse_key, refuse_value
from lsmkv_ext.limits cimport MAX_KEY, MAX_VALUE
from lsmkv_ext.port.handle cimport handle_check
from lsmkv_ext.port.wall_clock cimport clock_now
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.reader cimport AS_BYTES, lookup_bytes
from lsmkv_ext.store cimport Store


NEVER = NO_LIMIT        # also of `limit`, for none


cdef inline void put_number(char* at, uint64_t number, int size) noexcept:
    cdef int i
    for i in range(size):
        at[size - 1 - i] = <char>(number >> (8 * i) & 0xff)


cdef inline uint64_t get_number(const char* at, int size) noexcept:
    cdef uint64_t number = 0
    cdef int i
    for i in range(size):
        number = number << 8 | <unsigned char>at[i]
    return number


cdef inline bytes number_then(uint64_t number, bytes rest):
    """The key of `expiries`; with no rest a position."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, NUMBER_SIZE + PyBytes_GET_SIZE(rest))
    put_number(PyBytes_AS_STRING(out), number, NUMBER_SIZE)
    memcpy(PyBytes_AS_STRING(out) + NUMBER_SIZE, PyBytes_AS_STRING(rest), PyBytes_GET_SIZE(rest))
    return out


cdef inline bytes slice_of(bytes data, Py_ssize_t start, Py_ssize_t n):
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + start, n)


cdef int check_entry(bytes entry) except -1:
    if len(entry) < TAG_AT:
        raise ValueError(f"an entry of a cache has at least {TAG_AT} bytes, not {len(entry)}")
    return 0


cdef bytes encode_entry(uint64_t position, uint64_t expiry, uint64_t size, int kind, int segment, bytes tag):
    cdef bytes out = PyBytes_FromStringAndSize(NULL, TAG_AT + PyBytes_GET_SIZE(tag))
    cdef char* at = PyBytes_AS_STRING(out)
    put_number(at + POSITION_AT, position, NUMBER_SIZE)
    put_number(at + EXPIRY_AT, expiry, NUMBER_SIZE)
    put_number(at + SIZE_AT, size, KIND_AT - SIZE_AT)
    at[KIND_AT] = <char>kind
    at[SEGMENT_AT] = <char>segment
    memcpy(at + TAG_AT, PyBytes_AS_STRING(tag), PyBytes_GET_SIZE(tag))
    return out


def encode_number(uint64_t number):
    """Return a position or expiry as a key."""
    return number_then(number, b"")


def decode_number(bytes key not None):
    """Return the number at the start of a key."""
    if len(key) < NUMBER_SIZE:
        raise ValueError(f"the key has {len(key)} bytes, not {NUMBER_SIZE}")
    return get_number(key, NUMBER_SIZE)


def decode_entry(bytes entry not None):
    """Return (position, expiry, size, kind, segment, tag) of an entry of `index`."""
    cdef const char* at = PyBytes_AS_STRING(entry)
    check_entry(entry)
    return (get_number(at + POSITION_AT, NUMBER_SIZE), get_number(at + EXPIRY_AT, NUMBER_SIZE),
            get_number(at + SIZE_AT, KIND_AT - SIZE_AT), <unsigned char>at[KIND_AT], <unsigned char>at[SEGMENT_AT],
            slice_of(entry, TAG_AT, len(entry) - TAG_AT))


def decode_record(bytes record not None):
    """Return (live bytes, number of entries, key) of a record of `queue`."""
    cdef const char* at = PyBytes_AS_STRING(record)
    if len(record) < TOTALS_SIZE:
        raise ValueError(f"a record of the queue has at least {TOTALS_SIZE} bytes, not {len(record)}")
    return (get_number(at, NUMBER_SIZE), get_number(at + NUMBER_SIZE, NUMBER_SIZE),
            slice_of(record, TOTALS_SIZE, len(record) - TOTALS_SIZE))


cpdef uint64_t entry_size(bytes raw, bytes payload) except? 0:
    """Return the bytes that an entry counts for. Its key is stored twice, in `index` and in `queue`."""
    return 2 * len(raw) + len(payload) + ENTRY_OVERHEAD


cdef class EntryLog:
    """The records of a cache. Keys and values are bytes."""

    def __init__(self, Store index not None, list segments not None, Store queue not None, Store expiries not None,
                 Store tags not None):
        self.index = index
        self.segments = segments
        self.queue = queue
        self.expiries = expiries
        self.tags = tags

    def now(self):
        """Return the time by the clock of the database, in milliseconds since 1970."""
        handle_check(self.index.handle)
        return clock_now(&self.index.handle.clock)

    # Reading ---------------------------------------------------------------------------------------------------------------

    cdef object lookup(self, Store store, bytes key):
        cdef uint64_t snapshot = 0
        cdef ReadState state = store.open_state(&snapshot)
        return lookup_bytes(store, state, snapshot, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), key, None, True, False, NULL,
                            AS_BYTES)

    cdef Store segment_of(self, bytes entry):
        cdef int segment
        check_entry(entry)
        segment = <unsigned char>PyBytes_AS_STRING(entry)[SEGMENT_AT]
        if segment >= len(self.segments):
            raise ValueError(f"an entry of a cache names segment {segment} of {len(self.segments)}")
        return self.segments[segment]

    def is_expired(self, bytes entry not None):
        """Return whether the time of an entry is over."""
        cdef uint64_t expiry
        check_entry(entry)
        expiry = get_number(PyBytes_AS_STRING(entry) + EXPIRY_AT, NUMBER_SIZE)
        return expiry != 0 and expiry <= clock_now(&self.index.handle.clock)

    def read(self, bytes raw not None):
        """Return (entry, value) of a key that is there and has not expired, or None. It sees no writes of a transaction."""
        cdef bytes entry = self.lookup(self.index, raw)
        cdef bytes value, before
        while entry is not None and not self.is_expired(entry):
            value = self.lookup(self.segment_of(entry), slice_of(entry, POSITION_AT, NUMBER_SIZE))
            if value is not None:
                return entry, value
            # It has moved or is gone.
            before = entry
            entry = self.lookup(self.index, raw)
            if entry == before:
                return None
        return None

    def get(self, bytes raw not None):
        """Return (kind, value) of a key as its user sees it, or None, and count the read."""
        found = self.read(raw) if self.transaction is None else self.read_inside(raw)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        if self.slots is not None:
            PyByteArray_AS_STRING(self.slots)[self.slot_of(raw)] = 1
        entry, value = found
        return (<bytes>entry)[KIND_AT], value

    def read_inside(self, raw):
        """Hook: `read` while there is a transaction, perhaps of this thread."""
        return self.read(raw)

    cdef Py_ssize_t slot_of(self, bytes raw):
        return hash(raw) & (PyByteArray_GET_SIZE(self.slots) - 1)

    def forget_read(self, bytes raw not None):
        """Return whether the key was read, and forget it."""
        cdef char* at
        if self.slots is None:
            return False
        at = PyByteArray_AS_STRING(self.slots) + self.slot_of(raw)
        was_read = at[0] != 0
        at[0] = 0
        return was_read

    def find(self, bytes raw not None):
        """Return the entry of a key, also an expired one, or None."""
        if self.transaction is None:
            return self.lookup(self.index, raw)
        return self.transaction.get(raw, keyspace=self.index)

    def load(self, bytes entry not None):
        """Return the value of an entry."""
        cdef Store segment = self.segment_of(entry)
        cdef bytes position = slice_of(entry, POSITION_AT, NUMBER_SIZE)
        if self.transaction is None:
            return self.lookup(segment, position)
        return self.transaction.get(position, keyspace=segment)

    # Writing ---------------------------------------------------------------------------------------------------------------

    cdef int put(self, object writer, Store store, bytes key, bytes value) except -1:
        cdef WriteBatch batch
        if not isinstance(writer, WriteBatch):
            writer.put(key, value, keyspace=store)
            return 0
        batch = <WriteBatch>writer
        if len(key) > MAX_KEY:
            refuse_key(key, len(key))
        if len(value) > MAX_VALUE:
            refuse_value(len(value))
        return batch_add(&batch.b, store.tree.keyspace, OP_PUT, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key),
                         PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), 0)

    cdef int delete(self, object writer, Store store, bytes key) except -1:
        cdef WriteBatch batch
        if not isinstance(writer, WriteBatch):
            writer.delete(key, keyspace=store)
            return 0
        batch = <WriteBatch>writer
        return batch_add(&batch.b, store.tree.keyspace, OP_DELETE, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), NULL, 0, 0)

    def append(self, writer, bytes raw not None, bytes payload not None, uint64_t expiry, int kind, bytes tag not None):
        """Write an entry to the end of the log. An entry that it replaces was released before."""
        cdef uint64_t size = entry_size(raw, payload)
        cdef bytes position
        self.tail += size
        self.live += size
        self.count += 1
        position = number_then(self.tail, b"")
        self.put(writer, self.segments[self.segment], position, payload)
        self.put(writer, self.index, raw, encode_entry(self.tail, expiry, size, kind, self.segment, tag))
        self.put(writer, self.queue, position, self.totals(raw))
        if expiry:
            self.put(writer, self.expiries, number_then(expiry, raw), b"")
        if tag:
            self.put(writer, self.tags, tag + raw, b"")

    cdef bytes totals(self, bytes raw):
        """A record of `queue`."""
        cdef bytes out = PyBytes_FromStringAndSize(NULL, TOTALS_SIZE + PyBytes_GET_SIZE(raw))
        cdef char* at = PyBytes_AS_STRING(out)
        put_number(at, self.live, NUMBER_SIZE)
        put_number(at + NUMBER_SIZE, self.count, NUMBER_SIZE)
        memcpy(at + TOTALS_SIZE, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return out

    def make_room(self, writer, bytes raw, uint64_t size):
        """Hook: let an entry of `size` bytes fit in. `raw` is its key, whose old entry was released."""

    def set_entry(self, writer, bytes raw not None, bytes payload not None, uint64_t expiry, int kind, bytes tag not None):
        """Write an entry, in place of what the key has. Returns what `write_entry` returns."""
        return self.write_entry(writer, raw, payload, expiry, kind, tag, self.find(raw))

    def write_entry(self, writer, bytes raw not None, bytes payload not None, uint64_t expiry, int kind, bytes tag not None,
                    bytes old):
        """Write an entry in place of `old`. Returns False if it is larger than the cache, which then has neither."""
        cdef uint64_t size = entry_size(raw, payload)
        if size > self.limit:
            if old is not None:
                self.remove(writer, raw, old)
                self.mark(writer)
            return False
        if old is not None:
            self.release(writer, raw, old)
        if (self.live + size > self.limit or self.tail >= self.check_at
                or (self.next_expiry != NO_LIMIT and self.next_expiry <= clock_now(&self.index.handle.clock))):
            self.make_room(writer, raw, size)
        self.append(writer, raw, payload, expiry, kind, tag)
        if expiry and expiry < self.next_expiry:
            self.next_expiry = expiry
        return True

    def mark(self, writer):
        """Record the totals alone."""
        self.tail += MARK_SIZE
        self.put(writer, self.queue, number_then(self.tail, b""), self.totals(b""))

    def release(self, writer, bytes raw not None, bytes entry not None):
        """Take an entry out of all but `index`, where another follows. Its value and its record in `queue` are garbage now."""
        cdef uint64_t expiry
        check_entry(entry)
        expiry = get_number(PyBytes_AS_STRING(entry) + EXPIRY_AT, NUMBER_SIZE)
        self.live -= get_number(PyBytes_AS_STRING(entry) + SIZE_AT, KIND_AT - SIZE_AT)
        self.count -= 1
        if expiry:
            self.delete(writer, self.expiries, number_then(expiry, raw))
        if len(entry) > TAG_AT:
            self.delete(writer, self.tags, slice_of(entry, TAG_AT, len(entry) - TAG_AT) + raw)

    def remove(self, writer, bytes raw not None, bytes entry not None):
        """Take an entry out. The caller marks."""
        self.release(writer, raw, entry)
        self.delete(writer, self.index, raw)

    def touch(self, writer, bytes raw not None, bytes entry not None, uint64_t expiry):
        """Give an entry another expiry. The totals stay, so this needs no mark."""
        cdef uint64_t before
        check_entry(entry)
        before = get_number(PyBytes_AS_STRING(entry) + EXPIRY_AT, NUMBER_SIZE)
        if before:
            self.delete(writer, self.expiries, number_then(before, raw))
        if expiry:
            self.put(writer, self.expiries, number_then(expiry, raw), b"")
            self.next_expiry = min(self.next_expiry, expiry)
        self.put(writer, self.index, raw,
                 slice_of(entry, 0, EXPIRY_AT) + number_then(expiry, slice_of(entry, SIZE_AT, len(entry) - SIZE_AT)))
