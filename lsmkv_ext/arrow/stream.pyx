"""Arrow streams and arrays in capsules, for consumers."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EBADF, EINVAL, EIO, ENOMEM
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from lsmkv_ext.arrow.abi cimport ArrowStream
from lsmkv_ext.port.finalization cimport lsm_finalizing

from lsmkv_ext.errors import ClosedError

cdef extern from "Python.h" nogil:
    bint PyGILState_Check() noexcept

cdef const char* NO_MEMORY = b"MemoryError: out of memory"
cdef const char* FINALIZING = b"ClosedError: the interpreter is shutting down"


cdef class BatchSource:
    """Where the batches of a stream come from."""

    cdef int write_schema(self, ArrowSchema* out) except -1:
        raise NotImplementedError

    cdef int next_batch(self, ArrowArray* out) except -1:
        raise NotImplementedError

    cdef void end(self) noexcept:
        pass


# --- errors ----------------------------------------------------------------------------------------------------------

cdef int _errno_of(object error) noexcept:
    if isinstance(error, MemoryError):
        return ENOMEM
    if isinstance(error, ClosedError):
        return EBADF
    if isinstance(error, ValueError):
        return EINVAL
    if isinstance(error, OSError) and type(error.errno) is int and error.errno > 0:
        return error.errno
    return EIO


cdef int _failed(BatchSource source, object error) noexcept:
    """Keeps the text for get_last_error and returns the errno."""
    cdef int code = EIO
    try:
        code = _errno_of(error)
        source.text = f"{type(error).__name__}: {error}".encode("utf-8", "replace").replace(b"\0", b"?")
    except BaseException:
        source.text = None
        return ENOMEM
    return code


# --- the functions of a stream ---------------------------------------------------------------------------------------

cdef inline bint _stopped() noexcept nogil:
    """Whether a thread that now asked for the GIL would stop for good, with the consumer's locks."""
    return lsm_finalizing() and not PyGILState_Check()


cdef int _pull_schema(BatchSource source, ArrowSchema* out) noexcept:
    try:
        source.write_schema(out)
    except BaseException as error:
        return _failed(source, error)
    return 0


cdef int _pull_batch(BatchSource source, ArrowArray* out) noexcept:
    try:
        source.next_batch(out)
    except BaseException as error:
        return _failed(source, error)
    return 0


cdef int _get_schema(ArrowStream* stream, ArrowSchema* out) noexcept nogil:
    memset(out, 0, sizeof(ArrowSchema))
    if _stopped():
        return EBADF
    with gil:
        return _pull_schema(<BatchSource>stream.private_data, out)


cdef int _get_next(ArrowStream* stream, ArrowArray* out) noexcept nogil:
    memset(out, 0, sizeof(ArrowArray))
    if _stopped():
        return EBADF
    with gil:
        return _pull_batch(<BatchSource>stream.private_data, out)


cdef const char* _get_last_error(ArrowStream* stream) noexcept nogil:
    if _stopped():
        return FINALIZING
    with gil:
        text = (<BatchSource>stream.private_data).text
        return NO_MEMORY if text is None else PyBytes_AS_STRING(text)


cdef void _release_stream(ArrowStream* stream) noexcept nogil:
    stream.release = NULL
    if _stopped():
        return
    with gil:
        (<BatchSource>stream.private_data).end()
        Py_DECREF(<BatchSource>stream.private_data)


# --- capsules --------------------------------------------------------------------------------------------------------

cdef void _drop_stream(object capsule) noexcept:
    cdef ArrowStream* stream = <ArrowStream*>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


cdef object stream_capsule(BatchSource source):
    cdef ArrowStream* stream = <ArrowStream*>calloc(1, sizeof(ArrowStream))
    cdef object capsule
    if stream == NULL:
        raise MemoryError("Arrow stream")
    try:
        capsule = PyCapsule_New(stream, b"arrow_array_stream", _drop_stream)
    except BaseException:
        free(stream)
        raise
    stream.get_schema = _get_schema
    stream.get_next = _get_next
    stream.get_last_error = _get_last_error
    stream.private_data = <void*>source
    Py_INCREF(source)
    stream.release = _release_stream
    return capsule


cdef void _drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


cdef object array_capsule(ArrowArray* array):
    cdef ArrowArray* moved = <ArrowArray*>calloc(1, sizeof(ArrowArray))
    cdef object capsule
    if moved == NULL:
        raise MemoryError("Arrow array")
    try:
        capsule = PyCapsule_New(moved, b"arrow_array", _drop_array)
    except BaseException:
        free(moved)
        raise
    moved[0] = array[0]
    array.release = NULL
    return capsule
