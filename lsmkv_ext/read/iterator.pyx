cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM

from lsmkv_ext.port.bytes_like cimport as_bytes
from lsmkv_ext.port.handle cimport handle_check
from lsmkv_ext.port.status cimport ST_OK
from lsmkv_ext.read.read_state cimport ReadState
from lsmkv_ext.read.scan cimport POINTER_ITEM, ChunkItem, check_again, item_key, item_value
from lsmkv_ext.read.values cimport view_of_pointer


@cython.no_gc_clear
cdef class Iterator(Scan):
    """Iterator()\n--\n\n\
    Walks over a range of keys in order. `DB.iterator` returns it.

    Its position is between two keys: `next` returns the item after it and moves past that item, `prev` the item before
    it. An iterator belongs to one thread at a time. Its calls raise `CorruptionError` if a block is damaged, `IOError`
    if the disk fails, and `ClosedError` after a close.

    >>> db.put(b"ada", b"1815")
    >>> next(db.iterator())
    (b'ada', b'1815')
    """

    def _position(self):
        return ", reversed" if self.forward < 0 else ""

    def __iter__(self):
        return self

    cdef object make_item(self, int i):
        cdef object pair, key, value
        if self.shape == KEYS:
            return item_key(self, i)
        if self.shape == VALUES:
            return item_value(self, i)
        if self.shape == NOTHING:
            return None
        if self.shape == VIEWS:
            return self.make_view(i)
        key = item_key(self, i)
        if self.shape == VIEW_PAIRS:
            check_again(self)       # making the key may have run a collection
            return key, self.make_view(i)
        value = item_value(self, i)
        pair = PyTuple_New(2)
        Py_INCREF(key)
        PyTuple_SET_ITEM(pair, 0, key)
        Py_INCREF(value)
        PyTuple_SET_ITEM(pair, 1, value)
        return pair

    cdef object make_view(self, int i):
        """The value of an item as a memoryview. The scan is open: nothing has run since the last check that could close it."""
        cdef ChunkItem* item = &self.c.chunk.items[i]
        cdef ReadState state = self.state
        if not item.vlen & POINTER_ITEM:
            return memoryview(item_value(self, i))
        return view_of_pointer(state, self.c.chunk.data + item.at + item.klen)

    cdef int start(self) except -1:
        """Moves to the start of the iteration: the lower bound, or the upper one for a reverse iterator."""
        self.started = True
        self.at = 0
        return self.from_bound(self.forward)

    cdef int step(self, int direction) except -2:
        if not self.started:
            self.start()
        if direction == self.chunk_direction:
            if self.at == self.n_items:
                if not self.live:
                    return -1
                self.at = 0
                self.next_chunk()
                if self.n_items == 0:
                    return -1
            self.at += 1
            return self.at - 1
        if self.at == 0:
            self.reverse()
            self.at = 0
            if self.n_items == 0:
                return -1
            self.at = 1
            return 0
        self.at -= 1
        return self.at

    def __next__(self):
        cdef int i
        handle_check(self.handle)
        # The usual step: onward within the chunk.
        if self.at < self.n_items and self.chunk_direction == self.forward:
            self.at += 1
            return self.make_item(self.at - 1)
        self.check()
        i = self.step(self.forward)
        if i < 0:
            raise StopIteration
        return self.make_item(i)

    def next(self):
        """Return the next item and move past it. Raises `StopIteration` at the end.

        >>> db.put(b"ada", b"1815")
        >>> db.iterator().next()
        (b'ada', b'1815')
        """
        return self.__next__()

    def prev(self):
        """Return the previous item and move before it. Raises `StopIteration` at the beginning.

        >>> db.put(b"ada", b"1815")
        >>> it = db.iterator()
        >>> it.next() == it.prev()
        True
        """
        cdef int i
        self.check()
        i = self.step(-self.forward)
        if i < 0:
            raise StopIteration
        return self.make_item(i)

    def take(self, Py_ssize_t n):
        """Return up to `n` next items as a list. It is faster than as many calls of `next`.

        Before a damaged block it stops early; the next call raises `CorruptionError`.

        >>> db.put(b"ada", b"1815")
        >>> db.iterator().take(10)
        [(b'ada', b'1815')]
        """
        cdef list out = []
        cdef int i
        self.check()
        try:
            while n > 0:
                i = self.step(self.forward)
                if i < 0:
                    break
                out.append(self.make_item(i))
                check_again(self)       # making the item may have run a collection
                n -= 1
        except Exception:
            if not out or self.c.st.code == ST_OK:
                raise
        return out

    def seek(self, target):
        """Move to the first key >= `target`, in a reverse iterator to the last key <= `target`. `next` returns it.

        >>> db.put(b"ada", b"1815")
        >>> it = db.iterator()
        >>> it.seek(b"abc")
        >>> it.next()
        (b'ada', b'1815')
        """
        cdef bytes key = as_bytes(target)
        self.check()
        self.started = True
        self.at = 0
        self.from_key(self.forward, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), True)

    def seek_to_start(self):
        """Move before the first item, in the order of the iterator.

        >>> db.put(b"ada", b"1815")
        >>> it = db.iterator()
        >>> it.seek_to_start()
        """
        self.check()
        self.start()

    def seek_to_stop(self):
        """Move after the last item, in the order of the iterator.

        >>> db.put(b"ada", b"1815")
        >>> it = db.iterator()
        >>> it.seek_to_stop()
        >>> it.prev()
        (b'ada', b'1815')
        """
        self.check()
        self.started = True
        # A chunk filled backward from the end; the position is before all of its items.
        self.at = 0
        self.from_bound(-self.forward)

    def skip(self, Py_ssize_t n):
        """Move past up to `n` items and return their number.

        >>> db.put(b"ada", b"1815")
        >>> db.iterator().skip(10)
        1
        """
        cdef Py_ssize_t passed = 0
        cdef int room
        self.check()
        if not self.started:
            self.start()
        while passed < n:
            if self.chunk_direction != self.forward or self.at == self.n_items:
                if self.step(self.forward) < 0:
                    break
                passed += 1
                continue
            room = self.n_items - self.at
            if room > n - passed:
                room = <int>(n - passed)
            self.at += room
            passed += room
        return passed


cdef Iterator new_iterator(start, stop, bint include_start, bint include_stop, prefix, bint reverse, bint include_key,
                           bint include_value, bint fill_cache, bint copy):
    cdef Iterator it = Iterator.__new__(Iterator)
    it.configure(start, stop, include_start, include_stop, prefix, include_value, fill_cache)
    it.forward = -1 if reverse else 1
    if include_key:
        it.shape = PAIRS if include_value else KEYS
    else:
        it.shape = VALUES if include_value else NOTHING
    if include_value and not copy:
        it.c.keep_pointers = True
        it.shape = VIEW_PAIRS if include_key else VIEWS
    return it
