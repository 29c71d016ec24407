import os

import lz4.block
import xxhash

from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory


cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW, RTLD_NOLOAD
    void* dlopen(const char* path, int flags)
    void* dlsym(void* handle, const char* name)

cdef extern from "Python.h":
    int PyBUF_READ
    void Py_FatalError(const char* message) noexcept nogil

ctypedef void* (*xxh3_new_fn)() noexcept nogil
ctypedef int (*xxh3_free_fn)(void* state) noexcept nogil
ctypedef int (*xxh3_reset_fn)(void* state, uint64_t seed) noexcept nogil
ctypedef int (*xxh3_update_fn)(void* state, const void* data, size_t n) noexcept nogil
ctypedef uint64_t (*xxh3_digest_fn)(const void* state) noexcept nogil
ctypedef int (*lz4_fast_fn)(const char* src, char* dst, int n, int capacity, int acceleration) noexcept nogil

cdef enum:
    # On blocks that are half random: 1.5 times the default's speed, for at most 2 % more bytes. From 3 on short matches are
    # missed.
    ACCELERATION = 2

cdef const char* _EMPTY = ""
cdef xxh3_fn _xxh3_c = NULL
cdef xxh3_pair_fn _xxh3_pair_c = NULL
cdef xxh3_new_fn _xxh3_new = NULL
cdef xxh3_free_fn _xxh3_free = NULL
cdef xxh3_reset_fn _xxh3_reset = NULL
cdef xxh3_update_fn _xxh3_update = NULL
cdef xxh3_digest_fn _xxh3_digest = NULL
cdef lz4_fast_fn _lz4_fast = NULL
cdef lz4_compress_fn _lz4_compress_c = NULL
cdef lz4_decompress_fn _lz4_decompress_c = NULL


cdef object _borrow(const void* data, size_t n):
    return PyMemoryView_FromMemory(<char*>data, <Py_ssize_t>n, PyBUF_READ)


cdef uint64_t _xxh3_python(const void* data, size_t n, uint64_t seed) noexcept with gil:
    try:
        return xxhash.xxh3_64_intdigest(_borrow(data, n) if n else b"", seed)
    except BaseException:
        # No value means "no hash": a made-up one would hide a key or accept damaged bytes.
        Py_FatalError("lsmkv: the xxhash package could not hash")
    return 0


cdef int _xxh3_pair_state(const void* a, size_t n, const void* b, size_t m, uint64_t seed, uint64_t* out) noexcept nogil:
    cdef void* state = _xxh3_new()
    if state == NULL:
        return -1
    _xxh3_reset(state, seed)
    _xxh3_update(state, a, n)
    _xxh3_update(state, b, m)
    out[0] = _xxh3_digest(state)
    _xxh3_free(state)
    return 0


cdef int _xxh3_pair_python(const void* a, size_t n, const void* b, size_t m, uint64_t seed, uint64_t* out) noexcept with gil:
    try:
        state = xxhash.xxh3_64(_borrow(a, n) if n else b"", seed)
        state.update(_borrow(b, m) if m else b"")
        out[0] = state.intdigest()
    except BaseException:
        return -1
    return 0


cdef int _lz4_compress_fast(const char* src, char* dst, int n, int capacity) noexcept nogil:
    return _lz4_fast(src, dst, n, capacity, ACCELERATION)


cdef int _lz4_compress_python(const char* src, char* dst, int n, int capacity) noexcept with gil:
    try:
        data = _borrow(src, n) if n else b""
        packed = lz4.block.compress(data, mode="fast", acceleration=ACCELERATION, store_size=False)
    except Exception:
        return 0
    if PyBytes_GET_SIZE(packed) > capacity:
        return 0
    memcpy(dst, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    return <int>PyBytes_GET_SIZE(packed)


cdef int _lz4_decompress_python(const char* src, char* dst, int n, int capacity) noexcept with gil:
    if n <= 0 or capacity < 0:
        return -1
    try:
        raw = lz4.block.decompress(_borrow(src, n), uncompressed_size=capacity)
    except Exception:
        return -1
    if PyBytes_GET_SIZE(raw) > capacity:
        return -1
    memcpy(dst, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    return <int>PyBytes_GET_SIZE(raw)


cdef void* _symbol(str module_name, const char* name):
    """The C function `name` of an extension module, or NULL."""
    try:
        module = __import__(module_name, fromlist=["*"])
    except ImportError:
        return NULL
    path = getattr(module, "__file__", None)
    if path is None:
        return NULL
    encoded = os.fsencode(path)
    cdef void* handle = dlopen(encoded, RTLD_NOW | RTLD_NOLOAD)
    return dlsym(handle, name) if handle != NULL else NULL


cdef bint _hashes_agree():
    """Whether C function and package agree on every length class of XXH3 (0, <=3, <=8, <=16, <=128, <=240, blocks of 1024)."""
    data = bytes(range(256)) * 10 + bytes(range(255, -1, -1)) * 10
    for n in (0, 1, 3, 8, 16, 17, 128, 129, 240, 241, 700, 1024, 1025, 5000):
        if _xxh3_c(<const char*>data, n, n + 1) != _xxh3_python(<const char*>data, n, n + 1):
            return False
    return True


cdef bint _pairs_agree():
    data = bytes(range(256)) * 3
    cdef const char* p = data
    cdef uint64_t hashed = 0
    cdef size_t n, m
    for n, m in ((0, 0), (0, 9), (9, 0), (3, 5), (200, 41), (500, 268)):
        if _xxh3_pair_c(p, n, p + n, m, n + 1, &hashed) != 0 or hashed != _xxh3_python(p, n + m, n + 1):
            return False
    return True


cdef void* _first_symbol(const char* dispatched, const char* plain):
    """The function of the xxhash package that uses the vector unit of this processor, else the one for any processor. On long
    inputs the first is several times as fast."""
    cdef void* found = _symbol("xxhash._xxhash", dispatched)
    return found if found != NULL else _symbol("xxhash._xxhash", plain)


cdef bint _blocks_agree():
    cdef char packed[600]
    cdef char raw[512]
    data = b"lsmkv " * 60 + bytes(range(152))
    cdef int n = _lz4_compress_c(<const char*>data, packed, 512, 600)
    if n <= 0 or _lz4_decompress_c(packed, raw, n, 512) != 512 or raw[:512] != data:
        return False
    return _lz4_decompress_python(packed, raw, n, 512) == 512 and raw[:512] == data


cdef _resolve():
    global _xxh3_c, _xxh3_pair_c, _xxh3_new, _xxh3_free, _xxh3_reset, _xxh3_update, _xxh3_digest
    global _lz4_fast, _lz4_compress_c, _lz4_decompress_c
    _xxh3_c = <xxh3_fn>_first_symbol(b"XXH3_64bits_withSeed_dispatch", b"XXH3_64bits_withSeed")
    if _xxh3_c != NULL and not _hashes_agree():
        _xxh3_c = NULL
    _xxh3_new = <xxh3_new_fn>_symbol("xxhash._xxhash", b"XXH3_createState")
    _xxh3_free = <xxh3_free_fn>_symbol("xxhash._xxhash", b"XXH3_freeState")
    _xxh3_reset = <xxh3_reset_fn>_symbol("xxhash._xxhash", b"XXH3_64bits_reset_withSeed")
    _xxh3_update = <xxh3_update_fn>_first_symbol(b"XXH3_64bits_update_dispatch", b"XXH3_64bits_update")
    _xxh3_digest = <xxh3_digest_fn>_symbol("xxhash._xxhash", b"XXH3_64bits_digest")
    _xxh3_pair_c = NULL
    if (_xxh3_new != NULL and _xxh3_free != NULL and _xxh3_reset != NULL and _xxh3_update != NULL
            and _xxh3_digest != NULL):
        _xxh3_pair_c = _xxh3_pair_state
        if not _pairs_agree():
            _xxh3_pair_c = NULL
    _lz4_fast = <lz4_fast_fn>_symbol("lz4.block._block", b"LZ4_compress_fast")
    _lz4_compress_c = NULL
    if _lz4_fast != NULL:
        _lz4_compress_c = _lz4_compress_fast
    _lz4_decompress_c = <lz4_decompress_fn>_symbol("lz4.block._block", b"LZ4_decompress_safe")
    if _lz4_compress_c == NULL or _lz4_decompress_c == NULL or not _blocks_agree():
        _lz4_compress_c = NULL
        _lz4_decompress_c = NULL


def use(str path):
    """Choose the functions behind the pointers: "c" (where resolved) or "python" (the packages' API, slower).

    Both give the same bytes, so it may be called at any time. Tests use it to exercise the fallback.
    """
    global xxh3, xxh3_pair, lz4_compress, lz4_decompress
    if path not in ("c", "python"):
        raise ValueError(f"path must be 'c' or 'python', not {path!r}")
    fast = path == "c"
    xxh3 = _xxh3_c if fast and _xxh3_c != NULL else _xxh3_python
    xxh3_pair = _xxh3_pair_c if fast and _xxh3_pair_c != NULL else _xxh3_pair_python
    lz4_compress = _lz4_compress_c if fast and _lz4_compress_c != NULL else _lz4_compress_python
    lz4_decompress = _lz4_decompress_c if fast and _lz4_decompress_c != NULL else _lz4_decompress_python


def describe():
    """Return how each function is called ("c": without the GIL, "python": through the package), and the packages' versions."""
    return {
        "xxh3": "python" if xxh3 == _xxh3_python else "c",
        "lz4_compress": "python" if lz4_compress == _lz4_compress_python else "c",
        "lz4_decompress": "python" if lz4_decompress == _lz4_decompress_python else "c",
        "xxhash_version": xxhash.VERSION,
        "lz4_version": lz4.__version__,
    }


def hash64(const unsigned char[::1] data not None, uint64_t seed=0):
    """Return XXH3-64 of `data`, through the pointer that the data plane uses."""
    cdef size_t n = <size_t>data.shape[0]
    return xxh3(<const char*>&data[0] if n else _EMPTY, n, seed)


def hash64_pair(const unsigned char[::1] first not None, const unsigned char[::1] second not None, uint64_t seed=0):
    """Return XXH3-64 of `first + second`."""
    cdef size_t n = <size_t>first.shape[0]
    cdef size_t m = <size_t>second.shape[0]
    cdef uint64_t out = 0
    if xxh3_pair(<const char*>&first[0] if n else _EMPTY, n, <const char*>&second[0] if m else _EMPTY, m, seed, &out) != 0:
        raise MemoryError("hash")
    return out


def compress(const unsigned char[::1] data not None):
    """Return `data` as one LZ4 block, through the pointer that the data plane uses."""
    cdef size_t n = <size_t>data.shape[0]
    if n > 0x7E000000:
        raise ValueError("an LZ4 block takes at most 0x7E000000 bytes")
    cdef int capacity = lz4_bound(<int>n)
    cdef bytearray out = bytearray(capacity)
    cdef char* dst = out
    cdef int written
    cdef const char* src = <const char*>&data[0] if n else _EMPTY
    with nogil:
        written = lz4_compress(src, dst, <int>n, capacity)
    if written <= 0:
        raise MemoryError("LZ4 could not compress")
    return bytes(out[:written])


def decompress(const unsigned char[::1] data not None, int capacity):
    """Return the raw bytes of one LZ4 block, at most `capacity` of them. Raise ValueError on damage."""
    cdef size_t n = <size_t>data.shape[0]
    if capacity < 0 or n > 0x7FFFFFFF:
        raise ValueError("size out of range")
    cdef bytearray out = bytearray(capacity)
    cdef char* dst = out
    cdef int written
    cdef const char* src = <const char*>&data[0] if n else _EMPTY
    with nogil:
        written = lz4_decompress(src, dst, <int>n, capacity)
    if written < 0:
        raise ValueError("not an LZ4 block")
    return bytes(out[:written])


_resolve()
use("python" if os.environ.get("LSMKV_CODECS") == "python" else "c")
