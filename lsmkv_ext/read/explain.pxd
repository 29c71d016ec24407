# One point lookup, traced and told as dicts: every source asked, what its filter said, where the block came from, bytes, ns.

from libc.stdint cimport uint64_t
from lsmkv_ext.read.read_state cimport ReadState

# The caller counts itself in flight: a disk read releases the GIL. `path`: of the database, for errors.
cdef dict explain_lookup(ReadState state, uint64_t snapshot, bytes key, object path)
