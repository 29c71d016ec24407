# The interpreter's finalization. From its start one thread runs Python code; every other thread stops for good when it next
# asks for the GIL, and keeps the locks it holds. So no thread may be started or awaited. Exit hooks run before that.

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
