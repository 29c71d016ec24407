"""One block from Python, without a table: for tests."""

from libc.string cimport memcpy

from lsmkv_ext.block.block cimport block_alloc, block_check, block_free, block_get, block_get_portable
from lsmkv_ext.block.builder cimport (
    BlockBuilder,
    block_builder_add,
    block_builder_finish,
    block_builder_free,
    block_builder_init,
)
from lsmkv_ext.block.iterator cimport (
    BlockIter,
    block_iter_close,
    block_iter_first,
    block_iter_init,
    block_iter_last,
    block_iter_next,
    block_iter_prev,
    block_iter_seek,
    block_iter_set,
)
from lsmkv_ext.block.memory cimport BlockC, Entry
from lsmkv_ext.port.status cimport ST_OK


def build_block(entries, restart_interval=8):
    """Returns the raw bytes of a block of these (key, value, seq, kind, hash), which come in key order. A value starts with its
    expiry if the kind says so."""
    cdef BlockBuilder bb
    cdef bytes key, value
    block_builder_init(&bb, restart_interval)
    try:
        for key, value, seq, kind, hash in entries:
            if block_builder_add(&bb, key, len(key), value, len(value), seq, kind, hash) != ST_OK:
                raise MemoryError("block")
        if block_builder_finish(&bb) != ST_OK:
            raise MemoryError("block")
        return bb.raw.data[:bb.raw.len]
    finally:
        block_builder_free(&bb)


cdef class BlockView:
    """A block over raw bytes. Raises ValueError if they are not a valid block."""

    cdef BlockC* b
    cdef BlockIter it

    def __cinit__(self, bytes raw not None):
        cdef const char* problem
        block_iter_init(&self.it)
        self.b = block_alloc(len(raw), False)
        if self.b == NULL:
            raise MemoryError("block")
        memcpy(self.b.data, <const char*>raw, len(raw))
        problem = block_check(self.b)
        if problem != NULL:
            raise ValueError(problem.decode())
        if block_iter_set(&self.it, self.b) != ST_OK:
            raise MemoryError("block")

    def __dealloc__(self):
        block_iter_close(&self.it)
        block_free(self.b)

    def __len__(self):
        return self.b.n_entries

    @property
    def restart_interval(self):
        return 1 << self.b.shift

    @property
    def seq_width(self):
        return self.b.seq_width

    def tags(self):
        return self.b.data[self.b.tags_at:self.b.tags_at + self.b.n_entries]

    cdef object _entry(self):
        cdef Entry* e = &self.it.entry
        if not self.it.valid:
            return None
        return e.key[:e.klen], e.value[:e.vlen], e.seq, e.kind

    def first(self):
        block_iter_first(&self.it)
        return self._entry()

    def last(self):
        if block_iter_last(&self.it) != ST_OK:
            raise MemoryError("block")
        return self._entry()

    def seek(self, bytes key not None):
        """Moves to the first entry >= key and returns it, or None."""
        block_iter_seek(&self.it, key, len(key))
        return self._entry()

    def next(self):
        if not self.it.valid:
            raise ValueError("the block iterator is not on an entry")
        block_iter_next(&self.it)
        return self._entry()

    def prev(self):
        if not self.it.valid:
            raise ValueError("the block iterator is not on an entry")
        if block_iter_prev(&self.it) != ST_OK:
            raise MemoryError("block")
        return self._entry()

    def get(self, bytes key not None, hash, *, portable=False):
        """Returns (value, seq, kind), or None if the key is absent."""
        cdef Entry e
        cdef int found
        if portable:
            found = block_get_portable(self.b, key, len(key), hash, &e)
        else:
            found = block_get(self.b, key, len(key), hash, &e)
        return (e.value[:e.vlen], e.seq, e.kind) if found else None
