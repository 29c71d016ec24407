# A traced point lookup as dicts: each source probed, the answer of its filter, where the block came from, bytes, ns.

from libc.stdint cimport uint64_t
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.read.read_state cimport ReadState

# `now` is the time by which a snapshot judges expiries, or 0; `path` is the database's, for errors.
cdef dict explain_lookup(HandleC* handle, ReadState state, uint64_t snapshot, uint64_t now, bytes key, object path)
