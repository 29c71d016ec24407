# The finalization of the interpreter, after the exit hooks. From then on only one thread runs Python code. Every other thread
# stops for good when it next asks for the GIL, and keeps the locks that it holds. No thread may be started or joined.

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030D0000
    #define lsm_finalizing() Py_IsFinalizing()
    #else
    #define lsm_finalizing() _Py_IsFinalizing()
    #endif
    """
    bint lsm_finalizing() noexcept

cdef int refuse_finalizing() except -1      # raises ClosedError
