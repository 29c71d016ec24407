import errno
import os

from lsmkv_ext.port.file cimport ERR_NOT_REGULAR

from lsmkv_ext.errors import CorruptionError, Error, FormatError
from lsmkv_ext.errors import IOError as LsmIOError


cdef int raise_status(const Status* st, object path) except -1:
    """Raises the exception for `st`, or nothing for ST_OK; `path` is the file, or None if the caller does not know it."""
    if st.code == ST_OK:
        return 0
    what = st.what.decode() if st.what != NULL else "failed"
    name = os.fspath(path) if path is not None else None
    if st.code == ST_CORRUPT:
        raise CorruptionError(what, name, st.offset)
    if st.code == ST_IO and st.err == ERR_NOT_REGULAR:
        raise LsmIOError(errno.EINVAL, f"{what}: not a regular file", name)
    if st.code == ST_IO:
        raise LsmIOError(st.err, f"{what}: {os.strerror(st.err)}", name)
    if st.code == ST_FORMAT:
        raise FormatError(what, name)
    if st.code == ST_NO_MEMORY:
        raise MemoryError(what)
    if st.code == ST_BAD_ARGUMENT:
        raise ValueError(what)
    raise Error(f"{what} (status {st.code})")
