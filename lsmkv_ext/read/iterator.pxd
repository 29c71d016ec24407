# An Iterator is between two entries, as plyvel's is; a Cursor (read/cursor) is on one.

from lsmkv_ext.read.scan cimport Scan

cdef enum Shape:                # of what a step returns
    PAIRS
    KEYS
    VALUES
    NOTHING                     # None for each entry
    VIEW_PAIRS                  # the same with values as memoryviews
    VIEWS


cdef class Iterator(Scan):
    cdef int at                 # items of the chunk before the position
    cdef int forward            # 1, or -1 for reverse=True
    cdef int shape
    cdef bint started           # the first chunk was filled
    cdef object make_item(self, int i)
    cdef object make_view(self, int i)
    cdef int start(self) except -1
    # Moves over one entry, to larger keys (1) or smaller ones (-1). Returns its index in the chunk, or -1 at the end.
    cdef int step(self, int direction) except -2


# Not attached yet. May run Python code.
cdef Iterator new_iterator(start, stop, bint include_start, bint include_stop, prefix, bint reverse, bint include_key,
                           bint include_value, bint fill_cache, bint copy)
