"""Marks the threads that are inside a section. The `.pxd` says what a section is."""

from lsmkv_ext.errors import Error

cdef extern from *:
    """
    /* Otherwise the first use in a thread allocates, and glibc aborts if that fails. */
    #if defined(__ELF__)
    #define LSM_STATIC_TLS __attribute__((tls_model("initial-exec")))
    #else
    #define LSM_STATIC_TLS
    #endif
    static _Thread_local LSM_STATIC_TLS int lsm_section_depth;
    """
    int lsm_section_depth


cdef void section_enter() noexcept:
    global lsm_section_depth
    lsm_section_depth += 1


cdef void section_leave() noexcept:
    global lsm_section_depth
    lsm_section_depth -= 1


cdef int section_refuse() except -1:
    if lsm_section_depth:
        raise Error("a finalizer called this in the middle of another call, which may hold the locks that it needs")
    return 0


def in_section():
    """Return whether this thread is inside a section."""
    return lsm_section_depth != 0


def refuse_in_section():
    """Raise Error inside a section: for calls that take locks or wait."""
    section_refuse()


def section(work, *args, **options):
    """Run `work(*args, **options)` as a section and return its result."""
    section_enter()
    try:
        return work(*args, **options)
    finally:
        section_leave()
