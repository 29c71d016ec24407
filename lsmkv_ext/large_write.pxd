# Puts and batches with large values. A value from the threshold of its tree on goes to the value log first; then the engine logs
# and inserts a pointer to it. Callers write through put_value and write_batch, which pass everything else straight to the engine.
#
# A synced write below LARGE_BATCH bytes is logged whole: a second file would need a second fdatasync. The flush moves its values
# to a value log.
#
# GIL-protected: the check of a condition together with the write

from libc.stdint cimport uint64_t

from lsmkv_ext.batch cimport OP_PUT, BatchC
from lsmkv_ext.engine cimport Engine, Seen, WriteCondition
from lsmkv_ext.tree cimport Tree

cdef int put_large(Engine engine, Tree tree, const char* key, size_t klen, const char* value, size_t vlen, uint64_t expiry,
                   int sync, Seen seen) except -1
# Puts the next `length` bytes of a file object. From a mebibyte on they are never in memory as a whole: they go to a value log of
# their own, without the turn, and are on disk before a record points to them.
cdef int put_file(Engine engine, Tree tree, bytes key, object file, uint64_t length, uint64_t expiry, int sync) except -1
cdef int write_large(Engine engine, const BatchC* b, int sync, WriteCondition condition) except -1


# As Engine.write_one for a put.
cdef inline int put_value(Engine engine, Tree tree, const char* key, size_t klen, const char* value, size_t vlen,
                          uint64_t expiry, int sync, Seen seen=None) except -1:
    if vlen >= tree.large_value:
        return put_large(engine, tree, key, klen, value, vlen, expiry, sync, seen)
    return engine.write_one(tree, OP_PUT, key, klen, value, vlen, expiry, sync, seen)


# As Engine.write_payload.
cdef inline int write_batch(Engine engine, const BatchC* b, int sync, WriteCondition condition=None) except -1:
    if b.largest >= engine.large_value:
        return write_large(engine, b, sync, condition)
    return engine.write_payload(b, sync, condition)
