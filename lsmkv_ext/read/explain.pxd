# A traced point lookup as dicts: each source probed, the answer of its filter, where the block came from, bytes, ns.

from libc.stdint cimport uint64_t
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.read.read_state cimport ReadState

# `path` is the database's, for errors.
cdef dict explain_lookup(HandleC* handle, ReadState state, uint64_t snapshot, bytes key, object path)
