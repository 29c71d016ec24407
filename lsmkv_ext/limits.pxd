# Limits that every writer enforces and every decoder checks against. The control plane imports them from here too.

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define LSM_MAX_SEQ (1ULL << 62)
    #define LSM_MAX_KEYSPACE 0xFFFFFFFFull
    """
    const uint64_t MAX_KEYSPACE "LSM_MAX_KEYSPACE"
    const uint64_t MAX_SEQ "LSM_MAX_SEQ"    # sequence numbers are below it

cpdef enum:
    MAX_LEVELS = 7              # L0..L6
    MAX_KEY = 65535
    MAX_VALUE = 1 << 30
    # A larger value is stored uncompressed, straight from the caller's memory: compressing it would take two more copies, more
    # than a hostile log may cost (docs/durability.md, "Hostile files").
    LARGE_VALUE = 24 << 20
