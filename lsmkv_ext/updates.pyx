from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from lsmkv_ext.batch cimport OP_DELETE, checked_key, refuse_value
from lsmkv_ext.entry cimport expiry_from
from lsmkv_ext.engine cimport SYNC_AS_DEFAULT, Seen, sync_wish
from lsmkv_ext.large_write cimport put_value
from lsmkv_ext.limits cimport MAX_VALUE
from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.reader cimport AS_BYTES, lookup_bytes

cdef object MISSING = object()

cdef extern from "<stdint.h>":
    const int64_t INT64_MAX
    const int64_t INT64_MIN


cdef bytes checked_value(object value):
    """None stays None: it deletes."""
    cdef bytes v
    if value is None:
        return None
    v = as_bytes(value)
    if len(v) > MAX_VALUE:
        refuse_value(len(v))
    return v


cdef int64_t number_of(object value) except? -1:
    """A number is stored as 8 bytes, little-endian."""
    cdef int64_t number
    if len(<bytes>value) != sizeof(number):
        raise ValueError(f"the value is no number: it has {len(<bytes>value)} bytes, not 8")
    memcpy(&number, PyBytes_AS_STRING(value), sizeof(number))
    return number


cdef bytes bytes_of(int64_t number):
    return (<const char*>&number)[:sizeof(number)]


cdef int64_t updated(int64_t old, int64_t n, NumberUpdate how) except? -1:
    if how == MAXIMUM:
        return max(old, n)
    if how == MINIMUM:
        return min(old, n)
    if (n > 0 and old > INT64_MAX - n) or (n < 0 and old < INT64_MIN - n):
        raise OverflowError(f"{old} + {n} does not fit into 64 bits")
    return old + n


cdef class UpdatingStore(Store):
    """A `Store` with calls that read and write a key in one step. All of them are atomic to all threads."""

    cdef object read(self, bytes key, Seen seen):
        seen.expiry = 0
        seen.state = self.open_state(&seen.snapshot)
        return lookup_bytes(self, seen.state, seen.snapshot, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), key, MISSING, True,
                            False, &seen.expiry, AS_BYTES)

    cdef bint write_unchanged(self, bytes key, bytes value, Seen seen, int sync) except -1:
        self.check_writable()
        if value is None:
            return self.engine.write_one(self.tree, OP_DELETE, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), NULL, 0, 0, sync,
                                         seen)
        return put_value(self.engine, self.tree, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), PyBytes_AS_STRING(value),
                         PyBytes_GET_SIZE(value), seen.expiry or self.default_expiry(), sync, seen)

    cdef object update_number(self, object key, int64_t n, int64_t default, NumberUpdate how, object sync):
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef int wish = sync_wish(sync)
        cdef int64_t number
        self.check_writable()
        while True:
            value = self.read(k, seen)
            number = updated(default if value is MISSING else number_of(value), n, how)
            if self.write_unchanged(k, bytes_of(number), seen, wish):
                return number

    def add(self, key, int64_t n=1, int64_t default=0, *, sync=None):
        """Add `n` to the number of `key` and return the sum. A missing key counts as `default`. The key keeps its expiry.

        A number is stored as 8 bytes, little-endian and signed. Raises `OverflowError` if the sum needs more, and
        `ValueError` if the value has another length.

        >>> db.add(b"visits"), db.add(b"visits", 10)
        (1, 11)
        """
        return self.update_number(key, n, default, ADD, sync)

    def max(self, key, int64_t n, *, sync=None):
        """Raise the number of `key` to at least `n` and return it. A missing key becomes `n`. Errors are those of `add`.

        >>> db.max(b"peak", 7), db.max(b"peak", 3)
        (7, 7)
        """
        return self.update_number(key, n, n, MAXIMUM, sync)

    def min(self, key, int64_t n, *, sync=None):
        """Lower the number of `key` to at most `n` and return it. A missing key becomes `n`. Errors are those of `add`.

        >>> db.min(b"low", 7), db.min(b"low", 3)
        (7, 3)
        """
        return self.update_number(key, n, n, MINIMUM, sync)

    def append(self, key, suffix, *, sync=None):
        """Append `suffix` to the value of `key` and return the new length. A missing key counts as empty.

        >>> db.append(b"log", b"one,"), db.append(b"log", b"two")
        (4, 7)
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef bytes tail = as_bytes(suffix)
        cdef bytes value
        cdef int wish = sync_wish(sync)
        self.check_writable()
        while True:
            found = self.read(k, seen)
            value = checked_value(tail if found is MISSING else <bytes>found + tail)
            if self.write_unchanged(k, value, seen, wish):
                return len(value)

    def compare_and_set(self, key, expected, new, *, sync=None, ttl=None, expire_at=None):
        """Set `key` to `new` if its value is `expected`, and return whether it was. None stands for a missing key.

        `ttl` and `expire_at` are those of `put`. Without them the key keeps its expiry.

        >>> db.compare_and_set(b"lock", None, b"mine"), db.compare_and_set(b"lock", None, b"yours")
        (True, False)
        >>> db.compare_and_set(b"lock", b"mine", None)
        True
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef bytes old = checked_value(expected)
        cdef bytes value = checked_value(new)
        cdef int wish = sync_wish(sync)
        cdef uint64_t expiry = expiry_from(ttl, expire_at, &self.handle.clock)
        self.check_writable()
        while True:
            found = self.read(k, seen)
            if expiry:
                seen.expiry = expiry
            if (None if found is MISSING else found) != old:
                return False
            if (old is None and value is None) or self.write_unchanged(k, value, seen, wish):
                return True

    def touch(self, key, ttl=None, *, expire_at=None, sync=None):
        """Give `key` another expiry, and return whether the key is there. `ttl` and `expire_at` are those of `put`.

        >>> db.put(b"ada", b"token", ttl=60)
        >>> db.touch(b"ada", 3600), db.touch(b"bob", 3600)
        (True, False)
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef int wish = sync_wish(sync)
        cdef uint64_t expiry = expiry_from(ttl, expire_at, &self.handle.clock)
        self.check_writable()
        while True:
            found = self.read(k, seen)
            if found is MISSING:
                return False
            seen.expiry = expiry
            if self.write_unchanged(k, <bytes>found, seen, wish):
                return True

    def modify(self, key, function, *, sync=None):
        """Set `key` to `function(value)` and return that. A missing key is passed as None, and a result of None deletes.

        `function` runs outside of all locks, and again whenever another write to the key came first. The key keeps its
        expiry.

        >>> db.put(b"name", b"ada")
        >>> db.modify(b"name", bytes.upper)
        b'ADA'
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef bytes value
        cdef int wish = sync_wish(sync)
        self.check_writable()
        while True:
            found = self.read(k, seen)
            value = checked_value(function(None if found is MISSING else found))
            if self.write_unchanged(k, value, seen, wish):
                return value

    def pop(self, key, *default):
        """Delete `key` and return its value. A missing key gives `default`, or raises `KeyError` without one.

        >>> db.put(b"ada", b"1815")
        >>> db.pop(b"ada"), db.pop(b"ada", None)
        (b'1815', None)
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        if len(default) > 1:
            raise TypeError("pop takes a key and one default")
        self.check_writable()
        while True:
            found = self.read(k, seen)
            if found is MISSING:
                if not default:
                    raise KeyError(key)
                return default[0]
            if self.write_unchanged(k, None, seen, SYNC_AS_DEFAULT):
                return found

    def setdefault(self, key, default=b""):
        """Return the value of `key`; set it to `default` first if it is missing.

        >>> db.setdefault(b"ada", b"1815"), db.setdefault(b"ada", b"?")
        (b'1815', b'1815')
        """
        cdef Seen seen = Seen()
        cdef bytes k = checked_key(key)
        cdef bytes value = checked_value(as_bytes(default))
        self.check_writable()
        while True:
            found = self.read(k, seen)
            if found is not MISSING:
                return found
            if self.write_unchanged(k, value, seen, SYNC_AS_DEFAULT):
                return value
