# The clock that judges expiries: milliseconds since 1970. Each database has one, in its handle.
#
# It never runs backward, even if the clock of the system does: `latest` is the largest time that it ever returned. The writer
# stores it in the file SYNCED about once per second of use, so that it does not run backward over a reopen either. Stores into
# the mapped page are not synced. Byte grid: docs/format.md, "Expiry".
#
# Callers need not hold the GIL.

from libc.stdint cimport uint64_t

from lsmkv_ext.port.atomics cimport lsm_load64

cdef extern from * nogil:
    """
    #ifndef LSMKV_WALL_CLOCK_H
    #define LSMKV_WALL_CLOCK_H
    #include <stdint.h>
    #include <time.h>
    #ifdef CLOCK_REALTIME_COARSE
    #define LSM_WALL_CLOCK CLOCK_REALTIME_COARSE    /* of the last tick, at most 10 ms ago: a third of the time to read */
    #else
    #define LSM_WALL_CLOCK CLOCK_REALTIME
    #endif
    static inline uint64_t lsm_wall_ms(void) {
        struct timespec t; clock_gettime(LSM_WALL_CLOCK, &t);
        return t.tv_sec < 0 ? 0 : (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    }
    #endif
    """
    uint64_t lsm_wall_ms() noexcept

ctypedef struct ManualTime:     # the time of a ManualClock
    int refs                    # GIL-protected
    uint64_t now                # atomic

ctypedef struct ClockC:
    uint64_t latest             # atomic
    ManualTime* manual          # owned by reference; NULL: the clock of the system
    char* page                  # of SYNCED, borrowed; NULL: nothing is stored
    uint64_t stored             # atomic: the time stored last
    uint64_t count              # atomic: of stores

ctypedef struct Moment:         # the time by which one call judges all expiries
    ClockC* clock               # borrowed
    uint64_t now                # 0: not read yet. Most calls meet no expiry

cdef uint64_t clock_now(ClockC* clock) noexcept nogil
# Zeroes the sound slots of the clock in a page.
cdef void clock_erase(char* page) noexcept nogil
# Makes the clock show at least `now`.
cdef void clock_advance(ClockC* clock, uint64_t now) noexcept nogil
# Stores the time in `page`, the mapped page of SYNCED, from now on.
cdef void clock_attach(ClockC* clock, char* page) noexcept nogil
cdef void clock_set_manual(ClockC* clock, ManualTime* manual) noexcept       # takes a reference; NULL releases it


cdef inline bint has_passed(Moment* moment, uint64_t expiry) noexcept nogil:
    """Whether the entry with this expiry is expired."""
    if moment.now == 0:
        moment.now = clock_now(moment.clock)
    return expiry <= moment.now


cdef enum:
    CLOCK_END = 216             # of the slots in the page


cdef class ManualClock:
    cdef ManualTime* time       # owned by reference
