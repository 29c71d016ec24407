"""The records that iofault writes: one per I/O call, page stores and marks between them. In tests/, to see one:
python -m crash.trace FILE
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .iofault import Op

HEADER = struct.Struct("<IHHIiqQqqHHI")
MAGIC = 0x31464F49
INJECTED, CREATED, DIRECTORY = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Record:
    op: Op
    flags: int
    thread: int
    error: int
    result: int
    inode: int
    offset: int
    length: int
    path: str
    path2: str
    data: bytes

    @property
    def done(self) -> bool:
        return self.error == 0

    @property
    def created(self) -> bool:
        return bool(self.flags & CREATED)

    @property
    def truncates(self) -> bool:
        return self.op == Op.OPEN and bool(self.length & os.O_TRUNC)

    @property
    def directory(self) -> bool:
        return bool(self.flags & DIRECTORY)


def read(path: Path) -> Iterator[Record]:
    """Yields the whole records of a trace; a last one cut off by a kill is left out."""
    data = path.read_bytes()
    at = 0
    while len(data) - at >= HEADER.size:
        fields = HEADER.unpack_from(data, at)
        magic, op, flags, thread, error, result, inode, offset, length, n1, n2, n3 = fields
        if magic != MAGIC:
            raise ValueError(f"{path}: no record at {at}")
        at += HEADER.size
        if len(data) - at < n1 + n2 + n3:
            return
        name, second = data[at : at + n1].decode(), data[at + n1 : at + n1 + n2].decode()
        body = data[at + n1 + n2 : at + n1 + n2 + n3]
        at += n1 + n2 + n3
        yield Record(Op(op), flags, thread, error, result, inode, offset, length, name, second, body)


if __name__ == "__main__":
    for record in read(Path(sys.argv[1])):
        names = " -> ".join(filter(None, [record.path, record.path2]))
        outcome = os.strerror(record.error) if record.error else record.result
        print(f"{record.thread} {record.op.name.lower():9} {names} at {record.offset}, {record.length}: {outcome}")
