import importlib
import importlib.machinery
import importlib.util
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from lsmkv_ext.port.alloc cimport lsm_alloc, lsm_free
from lsmkv_ext.port.atomics cimport lsm_load32, lsm_load_ptr, lsm_store32
from lsmkv_ext.port.coding cimport get_u16, get_u32, get_u64

from lsmkv_ext.errors import FormatError

cdef extern from "<dlfcn.h>" nogil:
    int RTLD_NOW
    void* dlopen(const char* path, int flags)
    void* dlsym(void* handle, const char* name)

cdef extern from "Python.h":
    int PyBUF_READ

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030E0000
    #define LSM_ZSTD_MISSING "zstd is needed, and this Python was built without compression.zstd"
    #else
    #define LSM_ZSTD_MISSING "zstd is needed: install the package backports.zstd"
    #endif
    typedef struct {
        void* (*alloc)(void* opaque, size_t n);
        void (*free)(void* opaque, void* p);
        void* opaque;
    } LsmZstdMemory;
    static inline void* lsm_exchange_ptr(void** p, void* v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
    static inline int lsm_replace_null(void** p, void* v) {
        void* expected = NULL;
        return __atomic_compare_exchange_n(p, &expected, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    """
    const char* LSM_ZSTD_MISSING
    ctypedef struct LsmZstdMemory:
        void* (*alloc)(void* opaque, size_t n) noexcept nogil
        void (*free)(void* opaque, void* p) noexcept nogil
        void* opaque
    void* lsm_exchange_ptr(void** p, void* v) noexcept
    bint lsm_replace_null(void** p, void* v) noexcept      # stores v if *p is NULL

ctypedef void* (*new_fn)(LsmZstdMemory memory) noexcept nogil
ctypedef size_t (*free_fn)(void* context) noexcept nogil
ctypedef size_t (*compress_fn)(void* context, void* dst, size_t capacity, const void* src, size_t n, int level) noexcept nogil
ctypedef size_t (*decompress_fn)(void* context, void* dst, size_t capacity, const void* src, size_t n) noexcept nogil
ctypedef size_t (*measure_fn)(const void* src, size_t n) noexcept nogil
ctypedef unsigned (*is_error_fn)(size_t code) noexcept nogil
ctypedef int (*error_code_fn)(size_t code) noexcept nogil

ctypedef struct Functions:
    new_fn new_encoder
    free_fn free_encoder
    compress_fn compress
    new_fn new_decoder
    free_fn free_decoder
    decompress_fn decompress
    measure_fn frame_size
    is_error_fn is_error
    error_code_fn error_code

cdef enum:
    UNTRIED = 0
    THROUGH_C = 1
    THROUGH_PYTHON = 2
    MISSING = 3
    OUT_OF_MEMORY = 64              # ZSTD_error_memory_allocation
    DECODERS = 8
    MAGIC = 0xFD2FB528

cdef const char* _EMPTY = ""
cdef bytes _file = None             # of the extension module; set at import, like the next two
cdef const char* _file_path = NULL  # into _file
cdef bint _prefer_python = False
cdef Functions* _functions = NULL   # set once, atomically; lives as long as the process
cdef int _path = UNTRIED            # atomic
cdef object _api = None             # the Python module of the fallbacks
# Idle decompression contexts, about 95 KB each. A thread takes one out for a frame, so a fork at most loses some.
cdef void* _decoders[DECODERS]


# --- load ------------------------------------------------------------------------------------------------------------

cdef str _extension_file():
    """The file of the extension module, which need not be imported; None if there is none."""
    spec = importlib.util.find_spec("_zstd")
    if spec is not None:
        return spec.origin if spec.has_location else None
    spec = importlib.util.find_spec("backports")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = os.path.join(folder, "zstd", "_zstd" + suffix)
            if os.path.exists(path):
                return path
    return None


cdef _locate():
    global _file, _file_path, _prefer_python
    path = _extension_file()
    if path is not None:
        _file = os.fsencode(path)
        _file_path = _file
    _prefer_python = os.environ.get("LSMKV_CODECS") == "python"


cdef Functions* _resolve() noexcept nogil:
    """The C functions, or NULL. dlsym also looks into the libraries that the extension module is linked to."""
    cdef Functions* f
    cdef void* handle = dlopen(_file_path, RTLD_NOW) if _file_path != NULL else NULL
    if handle == NULL:
        return NULL
    f = <Functions*>calloc(1, sizeof(Functions))
    if f == NULL:
        return NULL
    f.new_encoder = <new_fn>dlsym(handle, b"ZSTD_createCCtx_advanced")
    f.free_encoder = <free_fn>dlsym(handle, b"ZSTD_freeCCtx")
    f.compress = <compress_fn>dlsym(handle, b"ZSTD_compressCCtx")
    f.new_decoder = <new_fn>dlsym(handle, b"ZSTD_createDCtx_advanced")
    f.free_decoder = <free_fn>dlsym(handle, b"ZSTD_freeDCtx")
    f.decompress = <decompress_fn>dlsym(handle, b"ZSTD_decompressDCtx")
    f.frame_size = <measure_fn>dlsym(handle, b"ZSTD_findFrameCompressedSize")
    f.is_error = <is_error_fn>dlsym(handle, b"ZSTD_isError")
    f.error_code = <error_code_fn>dlsym(handle, b"ZSTD_getErrorCode")
    if (f.new_encoder != NULL and f.free_encoder != NULL and f.compress != NULL and f.new_decoder != NULL
            and f.free_decoder != NULL and f.decompress != NULL and f.frame_size != NULL and f.is_error != NULL
            and f.error_code != NULL):
        return f
    free(f)
    return NULL


cdef bint _load_c() noexcept nogil:
    cdef Functions* f
    if lsm_load_ptr(<void**>&_functions) != NULL:
        return True
    f = _resolve()
    if f == NULL:
        return False
    if not lsm_replace_null(<void**>&_functions, f):
        free(f)                     # another thread was faster
    return True


cdef bint _load_python() noexcept with gil:
    global _api
    for name in ("compression.zstd", "backports.zstd"):
        try:
            _api = importlib.import_module(name)
            return True
        except Exception:
            continue
    return False


cdef int _load() noexcept nogil:
    cdef int path = MISSING
    if not _prefer_python and _load_c():
        path = THROUGH_C
    elif _load_python():
        path = THROUGH_PYTHON
    if path != MISSING:             # else the reason may have been a lack of memory
        lsm_store32(&_path, path)
    return path


cdef bint zstd_ready() noexcept nogil:
    cdef int path = lsm_load32(&_path)
    if path == UNTRIED:
        path = _load()
    return path != MISSING


cdef const char* zstd_missing() noexcept nogil:
    return LSM_ZSTD_MISSING


# --- contexts --------------------------------------------------------------------------------------------------------

cdef void* _alloc(void* opaque, size_t n) noexcept nogil:
    return lsm_alloc(n)


cdef void _free(void* opaque, void* p) noexcept nogil:
    lsm_free(p)


cdef void* _new(new_fn make) noexcept nogil:
    cdef LsmZstdMemory memory
    memory.alloc = _alloc
    memory.free = _free
    memory.opaque = NULL
    return make(memory)


cdef void* _take_decoder() noexcept nogil:
    cdef void* context
    cdef int i
    for i in range(DECODERS):
        context = lsm_exchange_ptr(&_decoders[i], NULL)
        if context != NULL:
            return context
    return _new(_functions.new_decoder)


cdef void _return_decoder(void* context) noexcept nogil:
    cdef int i
    for i in range(DECODERS):
        if lsm_replace_null(&_decoders[i], context):
            return
    _functions.free_decoder(context)


# --- compress --------------------------------------------------------------------------------------------------------

cdef int _failure(size_t code) noexcept nogil:
    return ZSTD_NO_MEMORY if _functions.error_code(code) == OUT_OF_MEMORY else 0


cdef int _compress_c(ZstdEncoder* e, int level, const char* src, int n, char* dst, int capacity) noexcept nogil:
    cdef size_t written
    if e.context == NULL:
        e.context = _new(_functions.new_encoder)
        if e.context == NULL:
            return ZSTD_NO_MEMORY
    written = _functions.compress(e.context, dst, capacity, src, n, level)
    return _failure(written) if _functions.is_error(written) else <int>written


cdef object _borrow(const char* data, int n):
    return PyMemoryView_FromMemory(<char*>data, n, PyBUF_READ) if n else b""


cdef int _compress_python(int level, const char* src, int n, char* dst, int capacity) noexcept with gil:
    try:
        packed = _api.compress(_borrow(src, n), level)
    except MemoryError:
        return ZSTD_NO_MEMORY
    except Exception:
        return 0
    if PyBytes_GET_SIZE(packed) > capacity:
        return 0
    memcpy(dst, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    return <int>PyBytes_GET_SIZE(packed)


cdef int zstd_compress(ZstdEncoder* e, int level, const char* src, int n, char* dst, int capacity) noexcept nogil:
    if lsm_load32(&_path) == THROUGH_C:
        return _compress_c(e, level, src, n, dst, capacity)
    return _compress_python(level, src, n, dst, capacity)


cdef void zstd_encoder_free(ZstdEncoder* e) noexcept nogil:
    if e.context != NULL:
        _functions.free_encoder(e.context)
        e.context = NULL


# --- decompress ------------------------------------------------------------------------------------------------------

cdef inline int _content_size_bytes(uint8_t descriptor) noexcept nogil:
    """Of the field in the frame header; 0: the frame does not state its content size."""
    cdef int flag = descriptor >> 6
    return 1 << flag if flag else descriptor >> 5 & 1


cdef inline uint64_t _content_size(const char* p, int n) noexcept nogil:
    if n == 1:
        return <uint8_t>p[0]
    return <uint64_t>get_u16(p) + 256 if n == 2 else get_u32(p) if n == 4 else get_u64(p)


cdef inline uint64_t _window(uint8_t b) noexcept nogil:
    return (<uint64_t>1 << (10 + (b >> 3))) // 8 * (8 + (b & 7))


cdef const char* zstd_check(const char* src, size_t n, uint64_t raw) noexcept nogil:
    cdef uint8_t descriptor
    cdef bint windowed
    cdef size_t size
    if n < 6 or get_u32(src) != <uint32_t>MAGIC:
        return "not a zstd frame"
    descriptor = <uint8_t>src[4]
    windowed = not descriptor >> 5 & 1
    size = <size_t>_content_size_bytes(descriptor)
    if descriptor & 0x0B or size == 0:
        return "a zstd frame with a dictionary, reserved bits or no content size"
    if n < 5 + windowed + size:
        return "not a zstd frame"
    if windowed and _window(<uint8_t>src[5]) > ZSTD_MAX_WINDOW:
        return "a zstd frame with too large a window"
    if _content_size(src + 5 + windowed, <int>size) != raw:
        return "a zstd frame of another size"
    return NULL


cdef int _decompress_c(const char* src, int n, char* dst, int raw) noexcept nogil:
    cdef void* context
    cdef size_t written
    # Several frames one after the other would decompress as one.
    if _functions.frame_size(src, n) != <size_t>n:
        return ZSTD_DAMAGED
    context = _take_decoder()
    if context == NULL:
        return ZSTD_NO_MEMORY
    written = _functions.decompress(context, dst, raw, src, n)
    _return_decoder(context)
    return 0 if written == <size_t>raw else ZSTD_DAMAGED


cdef int _decompress_python(const char* src, int n, char* dst, int raw) noexcept with gil:
    try:
        decoder = _api.ZstdDecompressor()
        data = decoder.decompress(_borrow(src, n), raw + 1)
        whole = decoder.eof and not decoder.unused_data and PyBytes_GET_SIZE(data) == raw
    except MemoryError:
        return ZSTD_NO_MEMORY
    except Exception:
        return ZSTD_DAMAGED
    if not whole:
        return ZSTD_DAMAGED
    memcpy(dst, PyBytes_AS_STRING(data), raw)
    return 0


cdef int zstd_decompress(const char* src, int n, char* dst, int raw) noexcept nogil:
    if lsm_load32(&_path) == THROUGH_C:
        return _decompress_c(src, n, dst, raw)
    return _decompress_python(src, n, dst, raw)


# --- Python ----------------------------------------------------------------------------------------------------------

def require():
    """Load zstd. Raise FormatError if there is none."""
    if not zstd_ready():
        raise FormatError(LSM_ZSTD_MISSING.decode())


def use(str path):
    """Choose between the C functions ("c", where resolved), the Python API ("python", slower) and none ("missing").

    All give the same bytes, so it may be called at any time. Tests use it.
    """
    if path not in ("c", "python", "missing"):
        raise ValueError(f"path must be 'c', 'python' or 'missing', not {path!r}")
    if path == "missing":
        lsm_store32(&_path, MISSING)
    elif path == "python":
        lsm_store32(&_path, THROUGH_PYTHON if _load_python() else MISSING)
    else:
        lsm_store32(&_path, THROUGH_C if _load_c() else THROUGH_PYTHON if _load_python() else MISSING)


def describe():
    """Return how zstd is called: "c" (without the GIL), "python" (through the package) or "missing". Loads it."""
    zstd_ready()
    return {THROUGH_C: "c", THROUGH_PYTHON: "python"}.get(lsm_load32(&_path), "missing")


def compress(const unsigned char[::1] data not None, int level=ZSTD_LEVEL):
    """Return `data` as one frame."""
    cdef size_t n = <size_t>data.shape[0]
    cdef ZstdEncoder e
    cdef bytearray out
    cdef char* dst
    cdef const char* src = <const char*>&data[0] if n else _EMPTY
    cdef int written
    if n > 0x70000000:
        raise ValueError("too much for one frame")
    require()
    out = bytearray(zstd_bound(<int>n))
    dst = out
    e.context = NULL
    with nogil:
        written = zstd_compress(&e, level, src, <int>n, dst, zstd_bound(<int>n))
        zstd_encoder_free(&e)
    if written <= 0:
        raise MemoryError("zstd could not compress")
    return bytes(out[:written])


def decompress(const unsigned char[::1] data not None, int raw):
    """Return the `raw` bytes of one frame. Raise ValueError on damage."""
    cdef size_t n = <size_t>data.shape[0]
    cdef const char* src = <const char*>&data[0] if n else _EMPTY
    cdef const char* problem
    cdef bytearray out
    cdef char* dst
    cdef int code
    if raw < 0 or n > 0x7FFFFFFF:
        raise ValueError("size out of range")
    require()
    problem = zstd_check(src, n, raw)
    if problem != NULL:
        raise ValueError(problem.decode())
    out = bytearray(raw)
    dst = out
    with nogil:
        code = zstd_decompress(src, <int>n, dst, raw)
    if code == ZSTD_NO_MEMORY:
        raise MemoryError("zstd")
    if code:
        raise ValueError("damaged zstd frame")
    return bytes(out)


_locate()
