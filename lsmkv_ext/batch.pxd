# Operations: their only encoder and decoder, and the batch that collects them. The bytes of a batch are the payload of its log
# record. Byte grid: docs/format.md, "Write-ahead log".
#
# Writes, replay, dumps and checks all decode a payload with an OpCursor. The bodies are here because put and replay inline them.

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from lsmkv_ext.entry cimport EXPIRY_SIZE, POINTER_SIZE, is_expiry
from lsmkv_ext.limits cimport MAX_KEY, MAX_KEYSPACE, MAX_VALUE
from lsmkv_ext.port.coding cimport get_u64, get_varint, put_u64, put_varint, varint_size
from lsmkv_ext.port.handle cimport HandleC
from lsmkv_ext.values.format cimport ValuePointer, pointer_decode

cdef enum:
    OP_PUT = 0
    OP_DELETE = 1
    OP_DELETE_RANGE = 2
    OP_PUT_POINTER = 8          # a put whose value is in a value log

cdef enum:                      # the first byte of an operation
    OP_KIND = 3                 # bits: one of the above
    OP_EXPIRY = 4               # bit: of a put, an expiry follows the key
    OP_POINTER = OP_PUT_POINTER     # bit: of a put, a pointer takes the place of the value
    OP_KEYSPACE = 16            # bit: the id of a keyspace follows
    ANY_OPERATION = OP_KIND | OP_EXPIRY | OP_POINTER | OP_KEYSPACE

cdef enum:
    LOGGED_POINTER = POINTER_SIZE + 8   # bytes of a pointer and the identity of its value log

cdef enum:
    MAX_BATCH_COUNT = (1 << 24) - 1
    MAX_BATCH_BYTES = 0x7ff00000        # 2 GiB less 1 MiB; a literal, since 1 << 31 overflows a C int

ctypedef struct Operation:      # pointers are borrowed from the payload
    int op
    uint32_t keyspace           # 0: the default one
    const char* key             # of a delete_range: its start
    size_t klen
    const char* value           # of a delete_range: its stop; NULL for a delete
    size_t vlen                 # of a pointer without the identity, which follows it
    uint64_t expiry             # 0: none
    uint64_t seq

ctypedef struct OpCursor:       # the rest of a payload; borrowed
    const char* p
    const char* end
    uint32_t left               # operations
    uint64_t seq                # of the next one
    int allowed                 # bits of the first byte


cdef inline int ops_allowed(uint32_t log_version) noexcept nogil:
    """The bits that the first byte of an operation may have in a log."""
    return OP_KIND if log_version == 1 else ANY_OPERATION


cdef inline size_t op_size(int op, uint32_t keyspace, size_t klen, size_t vlen, uint64_t expiry) noexcept nogil:
    """Bytes of the encoded operation."""
    cdef size_t n = 1 + varint_size(klen) + klen
    if keyspace:
        n += varint_size(keyspace)
    if expiry:
        n += EXPIRY_SIZE
    if op & (OP_DELETE | OP_POINTER):
        return n if op == OP_DELETE else n + LOGGED_POINTER
    return n + varint_size(vlen) + vlen


cdef inline char* op_encode(char* p, int op, uint32_t keyspace, const char* key, size_t klen, const char* value,
                            size_t vlen, uint64_t expiry) noexcept nogil:
    """Writes op_size bytes; returns the byte after the last. With OP_PUT_POINTER the value is a pointer and an identity."""
    p[0] = <char>(op | (OP_EXPIRY if expiry else 0) | (OP_KEYSPACE if keyspace else 0))
    p += 1
    if keyspace:
        p = put_varint(p, keyspace)
    p = put_varint(p, klen)
    memcpy(p, key, klen)
    p += klen
    if expiry:
        put_u64(p, expiry)
        p += EXPIRY_SIZE
    if op & (OP_DELETE | OP_POINTER):
        if op == OP_DELETE:
            return p
        vlen = LOGGED_POINTER
    else:
        p = put_varint(p, vlen)
    memcpy(p, value, vlen)
    return p + vlen


cdef inline const char* ops_begin(OpCursor* ops, const char* payload, size_t n, uint32_t count,
                                  uint64_t first_seq, int allowed) noexcept nogil:
    """Sets the cursor to the first operation. Returns NULL or what is wrong with the payload. `allowed`: see ops_allowed."""
    ops.allowed = allowed
    ops.p = payload
    ops.end = payload + n
    ops.left = count
    ops.seq = first_seq
    if count == 0 and n:
        return b"a batch is longer than its operations"
    return NULL


cdef inline const char* ops_next(OpCursor* ops, Operation* out) noexcept nogil:
    """Decodes the next operation and moves past it. Returns NULL or what is wrong; trusts no byte. Requires ops.left > 0."""
    cdef const char* p = ops.p
    cdef const char* end = ops.end
    cdef uint64_t klen = 0, vlen = 0, keyspace = 0
    cdef ValuePointer pointer
    cdef int first
    if p >= end:
        return b"a batch holds fewer operations than it says"
    first = <unsigned char>p[0]
    p += 1
    out.op = first & OP_KIND
    if first & ~ops.allowed or out.op > OP_DELETE_RANGE or (first & (OP_EXPIRY | OP_POINTER) and out.op != OP_PUT):
        return b"a batch holds an unknown operation"
    if first & OP_KEYSPACE:
        p = get_varint(p, end, &keyspace)
        if p == NULL or keyspace == 0 or keyspace > MAX_KEYSPACE:
            return b"a batch holds a malformed keyspace"
    out.keyspace = <uint32_t>keyspace
    p = get_varint(p, end, &klen)
    if p == NULL or klen > MAX_KEY or klen > <uint64_t>(end - p):
        return b"a batch holds a malformed key"
    out.key = p
    out.klen = klen
    out.value = NULL
    p += klen
    out.expiry = 0
    if first & OP_EXPIRY:
        if end - p < EXPIRY_SIZE or not is_expiry(get_u64(p)):
            return b"a batch holds a malformed expiry"
        out.expiry = get_u64(p)
        p += EXPIRY_SIZE
    if first & OP_POINTER:
        if (end - p < LOGGED_POINTER or pointer_decode(p, &pointer) != NULL or pointer.number == 0
                or get_u64(p + POINTER_SIZE) == 0):
            return b"a batch holds a malformed pointer"
        out.op = OP_PUT_POINTER
        out.value = p
        vlen = POINTER_SIZE
        p += LOGGED_POINTER
    elif out.op != OP_DELETE:
        p = get_varint(p, end, &vlen)
        if p == NULL or vlen > <uint64_t>(MAX_VALUE if out.op == OP_PUT else MAX_KEY) or vlen > <uint64_t>(end - p):
            return b"a batch holds a malformed value"
        out.value = p
        p += vlen
    out.vlen = vlen
    out.seq = ops.seq
    ops.p = p
    ops.seq += 1
    ops.left -= 1
    if ops.left == 0 and p != end:
        return b"a batch is longer than its operations"
    return NULL


# Decodes a whole payload: NULL or what is wrong with it.
cdef const char* ops_problem(const char* payload, size_t n, uint32_t count, int allowed) noexcept nogil
# (name, key, value or None, seq, keyspace, expiry or 0)
cdef tuple op_tuple(const Operation* op)


# GIL-protected: BatchC. A large write reads `data` without the GIL; it holds `writers` above 0, which forbids changes.
ctypedef struct BatchC:
    char* data                  # owned
    size_t used
    size_t capacity
    uint32_t count
    uint32_t deletes            # of these, delete_range included
    bint keyspaces              # some are of a keyspace other than the default one
    bint expiries               # some have an expiry
    size_t largest              # bytes of the largest value
    int writers                 # calls that read `data` and may release the GIL: until they end, it must not move or change

# `expiry` is 0 for none.
cdef int batch_add(BatchC* b, uint32_t keyspace, int op, const char* key, size_t klen, const char* value, size_t vlen,
                   uint64_t expiry) except -1

# Makes room for `count` more operations of n bytes in all. A batch that must grow grows to `capacity` bytes or the limit.
cdef int batch_reserve(BatchC* b, uint32_t count, size_t n, size_t capacity) except -1
cdef void batch_clear(BatchC* b) noexcept           # keeps the memory


cdef inline void batch_add_reserved(BatchC* b, uint32_t keyspace, int op, const char* key, size_t klen, const char* value,
                                    size_t vlen, uint64_t expiry) noexcept nogil:
    """As batch_add, after batch_reserve."""
    cdef char* p = b.data + b.used
    b.used += op_encode(p, op, keyspace, key, klen, value, vlen, expiry) - p
    b.count += 1
    b.deletes += (op & ~OP_POINTER) != OP_PUT
    b.keyspaces |= keyspace != 0
    b.expiries |= expiry != 0
    if vlen > b.largest and op != OP_DELETE_RANGE:
        b.largest = vlen


cdef int refuse_key(object key, Py_ssize_t n) except -1
cdef bytes checked_key(object key)          # as bytes, of a valid length. May run Python code
cdef int refuse_value(Py_ssize_t n) except -1
cdef int refuse_sync() except -1


cdef class WriteBatch:
    cdef BatchC b
    cdef HandleC* handle        # its database, or that of the keyspaces it names; owned by reference; NULL: none
    cdef uint32_t keyspace      # of operations that name none
    cdef object engine          # a Store
    cdef object sync
    cdef bint transaction
