"""Arrow arrays, schemas and streams made with ctypes, also hostile ones that no library makes. Counts releases."""

from __future__ import annotations

import ctypes
from collections import Counter
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p, cast, pointer, py_object


class Schema(Structure):
    pass


class Array(Structure):
    pass


class Stream(Structure):
    pass


RELEASE_SCHEMA = CFUNCTYPE(None, POINTER(Schema))
RELEASE_ARRAY = CFUNCTYPE(None, POINTER(Array))
RELEASE_STREAM = CFUNCTYPE(None, POINTER(Stream))
GET_SCHEMA = CFUNCTYPE(c_int, POINTER(Stream), POINTER(Schema))
GET_NEXT = CFUNCTYPE(c_int, POINTER(Stream), POINTER(Array))
GET_ERROR = CFUNCTYPE(c_void_p, POINTER(Stream))
Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(Schema))),
    ("dictionary", POINTER(Schema)),
    ("release", RELEASE_SCHEMA),
    ("private_data", c_void_p),
]
Array._fields_ = [
    *((name, c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(Array))),
    ("dictionary", POINTER(Array)),
    ("release", RELEASE_ARRAY),
    ("private_data", c_void_p),
]
Stream._fields_ = [
    ("get_schema", GET_SCHEMA),
    ("get_next", GET_NEXT),
    ("get_last_error", GET_ERROR),
    ("release", RELEASE_STREAM),
    ("private_data", c_void_p),
]

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype, _new_capsule.argtypes = py_object, [c_void_p, c_char_p, c_void_p]


class Made:
    """What the test made, kept alive, and how often each structure was released."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.released: Counter[str] = Counter()
        self.made: Counter[str] = Counter()

    def keep(self, thing):
        self.kept.append(thing)
        return thing

    def _releaser(self, kind: str, function):
        self.made[kind] += 1

        def release(structure) -> None:
            self.released[kind] += 1
            structure.contents.release = function(0)

        return self.keep(function(release))

    def schema(self, format: bytes | None, children: list[Schema] | None = None) -> Schema:
        made = self.keep(Schema(format=format, name=b"key"))
        if children is not None:
            made.n_children = len(children)
            made.children = self.keep((POINTER(Schema) * len(children))(*map(pointer, children)))
            made.release = self._releaser("schema", RELEASE_SCHEMA)
        elif format != b"child":
            made.release = self._releaser("schema", RELEASE_SCHEMA)
        return made

    def child_schema(self, format: bytes) -> Schema:
        return self.keep(Schema(format=format, name=b"key"))

    def array(self, length: int, buffers: list[bytes | None], child: bool = False, **fields) -> Array:
        made = self.keep(Array(length=length, n_buffers=len(buffers)))
        pieces = [None if b is None else self.keep(ctypes.create_string_buffer(b, max(len(b), 1))) for b in buffers]
        addresses = [None if piece is None else ctypes.addressof(piece) for piece in pieces]
        made.buffers = self.keep((c_void_p * max(len(buffers), 1))(*addresses))
        if "children" in fields:
            children = fields.pop("children")
            made.n_children = len(children)
            made.children = self.keep((POINTER(Array) * len(children))(*map(pointer, children)))
        for name, value in fields.items():
            setattr(made, name, value)
        if not child:
            made.release = self._releaser("array", RELEASE_ARRAY)
        return made

    def capsule(self, structure: Structure, name: bytes) -> object:
        return _new_capsule(ctypes.addressof(structure), self.keep(name), None)


class OneArray:
    def __init__(self, made: Made, schema: Schema, array: Array, names=(b"arrow_schema", b"arrow_array")) -> None:
        self.made, self.schema, self.array, self.names = made, schema, array, names

    def __arrow_c_array__(self, requested_schema=None):
        return (
            self.made.capsule(self.schema, self.names[0]),
            self.made.capsule(self.array, self.names[1]),
        )


class ManyArrays:
    """A stream of (schema, arrays); fails with `error` behind them if it is given."""

    def __init__(self, made: Made, schema: Schema | None, arrays: list[Array], error: bytes | None = None) -> None:
        self.made, self.schema, self.arrays, self.error = made, schema, list(arrays), error

    def __arrow_c_stream__(self, requested_schema=None):
        def get_schema(_stream, out):
            if self.schema is None:
                return 5
            out[0] = self.schema
            return 0

        def get_next(_stream, out):
            if self.arrays:
                out[0] = self.arrays.pop(0)
            elif self.error is not None:
                return 5
            else:
                out[0] = Array()
            return 0

        def get_error(_stream):
            return cast(self.made.keep(c_char_p(self.error)), c_void_p).value if self.error else None

        keep = self.made.keep
        stream = keep(Stream(keep(GET_SCHEMA(get_schema)), keep(GET_NEXT(get_next)), keep(GET_ERROR(get_error))))
        stream.release = self.made._releaser("stream", RELEASE_STREAM)
        return self.made.capsule(stream, b"arrow_array_stream")
