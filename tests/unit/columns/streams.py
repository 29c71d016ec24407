"""Reads Arrow streams through ctypes, as a library does that holds no GIL and checks nothing."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, addressof, byref, c_char_p, c_void_p, cast, py_object

from arrow.capsules import Array, Schema, Stream

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]


def structure(capsule, kind):
    name = {Schema: b"arrow_schema", Array: b"arrow_array", Stream: b"arrow_array_stream"}[kind]
    return cast(_pointer(capsule, name), POINTER(kind)).contents


class RawStream:
    def __init__(self, source, requested=None) -> None:
        self.capsule = source.__arrow_c_stream__(requested)
        self.c = structure(self.capsule, Stream)

    def schema(self) -> Schema:
        found = Schema()
        assert self.c.get_schema(byref(self.c), byref(found)) == 0
        return found

    def next(self) -> Array | int | None:
        """The next array, None at the end, or the errno of a failure."""
        found = Array()
        code = self.c.get_next(byref(self.c), byref(found))
        if code:
            assert not found.release
            return code
        return found if found.release else None

    def error(self) -> str:
        return ctypes.string_at(self.c.get_last_error(byref(self.c))).decode()

    def release(self) -> None:
        self.c.release(byref(self.c))
        assert not self.c.release


def release(structure) -> None:
    structure.release(byref(structure))
    assert not structure.release


def column(array: Array, wide: bool = False) -> list[bytes]:
    """The rows of an array of binary without nulls."""
    ends = cast(array.buffers[1], POINTER(ctypes.c_int64 if wide else ctypes.c_int32))
    data = ctypes.string_at(array.buffers[2], ends[array.length])
    return [data[ends[i] : ends[i + 1]] for i in range(array.length)]


def rows(array: Array) -> list[tuple[bytes, ...]]:
    assert array.null_count == 0 and array.offset == 0
    columns = [array.children[i].contents for i in range(array.n_children)]
    assert all(each.length == array.length for each in columns)
    return list(zip(*map(column, columns), strict=True))


def moved(array: Array) -> Array:
    """Another structure of the same array, as the interface moves one."""
    copy = Array()
    ctypes.memmove(addressof(copy), addressof(array), ctypes.sizeof(Array))
    array.release = type(array.release)(0)
    return copy
