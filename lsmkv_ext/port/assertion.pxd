# Invariants of the data plane. A broken one aborts the process, in a build with LSMKV_DEBUG=1; other builds do not evaluate the
# condition. It must have no side effects.

cdef extern from * nogil:
    """
    #ifndef LSMKV_ASSERTION_H
    #define LSMKV_ASSERTION_H
    #include <stdio.h>
    #include <stdlib.h>
    #if LSMKV_DEBUG
    #define lsm_assert(x) \\
        ((x) ? (void)0 : (fprintf(stderr, "%s:%d: invariant broken: %s\\n", __FILE__, __LINE__, #x), abort()))
    #else
    #define lsm_assert(x) ((void)0)
    #endif
    #endif
    """
    void lsm_assert(bint x) noexcept
