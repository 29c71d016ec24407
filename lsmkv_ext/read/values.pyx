from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

from lsmkv_ext.entry cimport POINTER_SIZE
from lsmkv_ext.memtable.memtable cimport MemValueLog
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.status cimport ST_OK, fail_corrupt, status_clear
from lsmkv_ext.read.read_state cimport raise_read
from lsmkv_ext.table.reader cimport refuse_wait
from lsmkv_ext.values.format cimport VALUE_STORED, pointer_decode, pointer_end, value_size
from lsmkv_ext.values.reader cimport ValueLog, value_read, value_read_cached
from lsmkv_ext.values.view cimport value_view

cdef enum:
    SHORT_VALUE = 64 << 10      # bytes

cdef extern from "Python.h" nogil:
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyEval_SaveThread() noexcept
    void PyEval_RestoreThread(PyThreadState* ts) noexcept


cdef ValueLogC* find_in_tables(const ReadStateC* v, uint64_t number) noexcept nogil:
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = v.n_value_logs
    cdef Py_ssize_t middle
    while low < high:
        middle = (low + high) // 2
        if v.value_logs[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return v.value_logs[low] if low < v.n_value_logs and v.value_logs[low].number == number else NULL


cdef ValueLogC* find_in_memtables(const ReadStateC* v, uint64_t number) noexcept nogil:
    cdef MemValueLog* held
    cdef int i
    for i in range(v.n_memtables):
        held = <MemValueLog*>lsm_load_ptr(<void**>&v.memtables[i].value_logs)
        while held != NULL:
            if held.log.number == number:
                return held.log
            held = held.next
    return NULL


cdef ValueLogC* find_value(const ReadStateC* v, const char* pointer, ValuePointer* p, Status* st) noexcept nogil:
    cdef ValueLogC* log = NULL
    cdef const char* problem = pointer_decode(pointer, p)
    if problem == NULL:
        log = find_in_memtables(v, p.number)
        if log == NULL:
            log = find_in_tables(v, p.number)
        if log == NULL:
            problem = "a pointer names a value log that its table does not"
        elif pointer_end(p) > lsm_load64(&log.end):
            problem = "a pointer leads beyond the end of its value log"
    if problem == NULL:
        return log
    fail_corrupt(st, problem, p.number, p.offset)
    return NULL


cdef int read_from_disk(ValueLogC* log, const ValuePointer* p, char* out, ReadContext* rc, Status* st) noexcept nogil:
    cdef uint64_t start = lsm_now_ns()
    cdef int code = value_read(log, p, out, st)
    rc.disk_ns += lsm_now_ns() - start
    return code


cdef int read_value(ValueLogC* log, const ValuePointer* p, char* out, ReadContext* rc, Status* st) noexcept nogil:
    cdef PyThreadState* ts
    cdef int code
    # A short value that the page cache has is not worth a turn of the GIL.
    if rc.gil_held and p.raw <= SHORT_VALUE and value_read_cached(log, p, out):
        code = ST_OK
    elif rc.no_wait:
        return refuse_wait(st)
    else:
        ts = PyEval_SaveThread() if rc.gil_held else NULL
        code = read_from_disk(log, p, out, rc, st)
        if rc.gil_held:
            PyEval_RestoreThread(ts)
    rc.disk_reads += 1
    rc.disk_bytes += value_size(p.stored, p.raw)
    return code


cdef object view_of_pointer(ReadState state, const char* pointer):
    cdef ValuePointer p
    cdef ValueLogC* found
    cdef ValueLog log
    cdef Status st
    cdef object value = None
    status_clear(&st)
    found = find_value(&state.c, pointer, &p, &st)
    if found != NULL:
        log = <ValueLog>found.owner
        if p.compression == VALUE_STORED and p.raw:
            value = value_view(log, &p, &st)
        else:
            value = log.read(PyBytes_FromStringAndSize(pointer, POINTER_SIZE))
    if st.code != ST_OK:
        raise_read(state, &st, None)
    return memoryview(value)
