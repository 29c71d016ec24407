from datetime import datetime, timedelta

from libc.math cimport ceil, isnan

from lsmkv_ext.port.wall_clock cimport clock_now


cdef double milliseconds(object seconds, str name) except? -1:
    cdef double ms
    # float() would parse text and whatever has a buffer.
    if isinstance(seconds, bool) or not (hasattr(seconds, "__float__") or hasattr(seconds, "__index__")):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    ms = float(seconds) * 1000
    if isnan(ms):
        raise ValueError(f"{name} must be a number, not nan")
    return ms


cdef double ttl_ms(object ttl) except? -1:
    cdef double ms = milliseconds(ttl.total_seconds() if isinstance(ttl, timedelta) else ttl, "ttl")
    if ms <= 0:
        raise ValueError(f"ttl must be above 0, not {ttl!r}")
    return ms


cdef double moment_ms(object when) except? -1:
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise ValueError("expire_at needs a time zone: a naive datetime is ambiguous")
        when = when.timestamp()
    return milliseconds(when, "expire_at")


cdef uint64_t bounded(double ms) noexcept:
    """Rounded up: an entry lives at least as long as asked."""
    if ms >= <double>MAX_EXPIRY:
        return MAX_EXPIRY
    return <uint64_t>ceil(ms) if ms > 0 else 1


cdef uint64_t expiry_from(object ttl, object expire_at, ClockC* clock) except? 0:
    cdef uint64_t left
    if ttl is None:
        return 0 if expire_at is None else bounded(moment_ms(expire_at))
    if expire_at is not None:
        raise TypeError("give ttl or expire_at, not both")
    left = bounded(ttl_ms(ttl))
    return min(left + clock_now(clock), MAX_EXPIRY)


def ttl_milliseconds(ttl):
    """Return a TTL as the data plane counts it. Raises as `put` does for a wrong one."""
    return bounded(ttl_ms(ttl))
