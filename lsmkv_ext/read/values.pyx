from libc.stdint cimport uint64_t

from lsmkv_ext.memtable.memtable cimport MemValueLog
from lsmkv_ext.port.atomics cimport lsm_load64, lsm_load_ptr
from lsmkv_ext.port.clock cimport lsm_now_ns
from lsmkv_ext.port.status cimport fail_corrupt
from lsmkv_ext.values.format cimport pointer_decode, pointer_end, value_size
from lsmkv_ext.values.reader cimport value_read

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


cdef int read_value(ValueLogC* log, const ValuePointer* p, char* out, ReadContext* rc, Status* st) noexcept nogil:
    cdef PyThreadState* ts = PyEval_SaveThread() if rc.gil_held else NULL
    cdef uint64_t start = lsm_now_ns()
    cdef int code = value_read(log, p, out, st)
    rc.disk_ns += lsm_now_ns() - start
    if rc.gil_held:
        PyEval_RestoreThread(ts)
    rc.disk_reads += 1
    rc.disk_bytes += value_size(p.stored, p.raw)
    return code
