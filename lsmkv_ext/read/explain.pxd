# A traced point lookup as dicts: each source probed, the answer of its filter, where the block came from, bytes, ns.

from libc.stdint cimport uint64_t
from lsmkv_ext.read.read_state cimport ReadState

# The caller counts itself in `inflight`, because a disk read releases the GIL. `path` is the database's, for errors.
cdef dict explain_lookup(ReadState state, uint64_t snapshot, bytes key, object path)
