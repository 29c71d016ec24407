cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.read.scan cimport item_key, item_value, shortened

from lsmkv_ext.errors import ClosedError, IteratorInvalidError


@cython.no_gc_clear
cdef class Cursor(Scan):
    """Cursor()\n--\n\n\
    A position on a key, or on none (`valid` is False). `DB.cursor` returns it.

    A cursor belongs to one thread at a time. Its calls raise `CorruptionError` if a block is damaged, `IOError` if the
    disk fails, and `ClosedError` after a close.

    >>> db.put(b"ada", b"1815")
    >>> cursor = db.cursor()
    >>> cursor.seek_to_first(), cursor.item()
    (True, (b'ada', b'1815'))
    """

    def _position(self):
        cdef bytes key
        if self.busy:
            return ", moved by another thread"
        try:
            self.check()
        except ClosedError:
            return " (closed)"
        if self.on < 0:
            return ", on no key"
        key = item_key(self, self.on)
        return f", on {shortened(key)}"

    @property
    def valid(self):
        """Whether the cursor is on a key.

        >>> db.cursor().valid
        False
        """
        self.check()
        return self.on >= 0

    cdef bint enter_chunk(self) noexcept:
        """Moves to the first item of a new chunk; False if there is none."""
        self.on = 0 if self.n_items else -1
        return self.on >= 0

    cdef bint seek_key(self, int direction, object target) except -1:
        cdef bytes key = as_bytes(target)
        self.check()
        self.on = -1
        self.from_key(direction, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), True)
        return self.enter_chunk()

    cdef bint seek_edge(self, int direction) except -1:
        self.check()
        self.on = -1
        self.from_bound(direction)
        return self.enter_chunk()

    def seek(self, target):
        """Move to the first key >= `target`. Returns whether there is one.

        >>> db.put(b"ada", b"1815")
        >>> db.cursor().seek(b"abc")
        True
        """
        return self.seek_key(1, target)

    def seek_for_prev(self, target):
        """Move to the last key <= `target`. Returns whether there is one.

        >>> db.put(b"ada", b"1815")
        >>> db.cursor().seek_for_prev(b"abc")
        False
        """
        return self.seek_key(-1, target)

    def seek_to_first(self):
        """Move to the first key of the range. Returns whether there is one.

        >>> db.cursor().seek_to_first()
        False
        """
        return self.seek_edge(1)

    def seek_to_last(self):
        """Move to the last key of the range. Returns whether there is one.

        >>> db.cursor().seek_to_last()
        False
        """
        return self.seek_edge(-1)

    cdef bint move(self, int direction) except -1:
        self.check()
        if self.on < 0:
            raise IteratorInvalidError("the cursor is on no entry: seek first")
        if direction == self.chunk_direction:
            if self.on + 1 < self.n_items:
                self.on += 1
                return True
            self.on = -1
            self.next_chunk()
        elif self.on > 0:
            self.on -= 1
            return True
        else:
            self.on = -1
            self.reverse()
        return self.enter_chunk()

    def next(self):
        """Move to the next key. Returns whether there is one.

        Raises `IteratorInvalidError` if the cursor is on no key.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"ada"), cursor.next()
        (True, False)
        """
        return self.move(1)

    def prev(self):
        """Move to the previous key. Returns whether there is one.

        Raises `IteratorInvalidError` if the cursor is on no key.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"ada"), cursor.prev()
        (True, False)
        """
        return self.move(-1)

    cdef int require_entry(self) except -1:
        self.check()
        if self.on < 0:
            raise IteratorInvalidError("the cursor is on no entry")
        return 0

    def key(self):
        """Return the key. Raises `IteratorInvalidError` if the cursor is on none.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"ada"), cursor.key()
        (True, b'ada')
        """
        self.require_entry()
        return item_key(self, self.on)

    def value(self):
        """Return the value of the key. Raises `IteratorInvalidError` if the cursor is on none.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"ada"), cursor.value()
        (True, b'1815')
        """
        self.require_entry()
        return item_value(self, self.on)

    def item(self):
        """Return (key, value). Raises `IteratorInvalidError` if the cursor is on no key.

        >>> db.put(b"ada", b"1815")
        >>> cursor = db.cursor()
        >>> cursor.seek(b"ada"), cursor.item()
        (True, (b'ada', b'1815'))
        """
        self.require_entry()
        return (item_key(self, self.on), item_value(self, self.on))


cdef Cursor new_cursor(start, stop, prefix, bint fill_cache):
    cdef Cursor cursor = Cursor.__new__(Cursor)
    cursor.configure(start, stop, True, False, prefix, True, fill_cache)
    cursor.on = -1
    return cursor
