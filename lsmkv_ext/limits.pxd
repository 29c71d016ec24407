# Limits that every writer enforces and every decoder checks against.

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define LSM_MAX_SEQ (1ULL << 62)
    """
    const uint64_t MAX_SEQ "LSM_MAX_SEQ"    # sequence numbers are below it

cdef enum:
    MAX_KEY = 65535
    MAX_VALUE = 1 << 30
    # A value above this goes from the caller's memory into a stored block: compressing it would need two more copies, and a log
    # may hold nothing else (docs/durability.md, "hostile log").
    LARGE_VALUE = 24 << 20
