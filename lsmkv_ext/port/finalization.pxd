# The finalization of the interpreter. Once it starts, one thread runs Python code; every other thread hangs when it next needs
# the GIL, with the locks it holds. So no thread may be started or joined. Exit hooks run before it.

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    #define lsm_finalizing() Py_IsFinalizing()
    #else
    #define lsm_finalizing() _Py_IsFinalizing()
    #endif
    """
    bint lsm_finalizing() noexcept

cdef int refuse_finalizing() except -1      # raises ClosedError
