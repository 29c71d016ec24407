from datetime import datetime, timedelta

from cpython.long cimport PyLong_AsLongAndOverflow
from libc.math cimport INFINITY, ceil, isnan

from lsmkv_ext.port.wall_clock cimport clock_now

cdef enum:
    MOST_SECONDS = 1 << 30      # of a TTL that is not counted as a float


cdef double milliseconds(object seconds, str name) except? -1:
    cdef double ms
    # float() also takes texts.
    if isinstance(seconds, (bool, str, bytes, bytearray, memoryview)):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    ms = float(seconds) * 1000
    if isnan(ms):
        raise ValueError(f"{name} must be a number, not nan")
    return ms


cdef uint64_t ttl_ms(object ttl) except 0:
    cdef double ms
    cdef long seconds
    cdef int overflow = 0
    if type(ttl) is int:        # the usual TTL, without a detour by way of a float
        seconds = PyLong_AsLongAndOverflow(ttl, &overflow)
        if overflow == 0 and 0 < seconds < MOST_SECONDS:
            return <uint64_t>seconds * 1000
        ms = INFINITY if overflow > 0 else seconds * 1000.0
    elif type(ttl) is float:
        ms = <double>ttl * 1000
    else:
        ms = milliseconds(ttl.total_seconds() if isinstance(ttl, timedelta) else ttl, "ttl")
    if not ms > 0:
        raise ValueError(f"ttl must be above 0, not {ttl!r}")
    return bounded(ms)


cdef double moment_ms(object when) except? -1:
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise ValueError("expire_at needs a time zone: a naive datetime is ambiguous")
        when = when.timestamp()
    return milliseconds(when, "expire_at")


cdef uint64_t bounded(double ms) noexcept:
    """Rounded up, to at least 1: 0 means no expiry."""
    if ms >= <double>MAX_EXPIRY:
        return MAX_EXPIRY
    return <uint64_t>ceil(ms) if ms > 0 else 1


cdef uint64_t expiry_from(object ttl, object expire_at, ClockC* clock) except? 0:
    cdef uint64_t left
    if ttl is None:
        return 0 if expire_at is None else bounded(moment_ms(expire_at))
    if expire_at is not None:
        raise TypeError("give ttl or expire_at, not both")
    left = ttl_ms(ttl)
    return min(left + clock_now(clock), MAX_EXPIRY)


def ttl_milliseconds(ttl):
    """Return a TTL as the data plane counts it. Raises as `put` does for a wrong one."""
    return ttl_ms(ttl)
