"""PyTorch: a map-style dataset over a database."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lsmkv.db import DB
from lsmkv.errors import Error
from lsmkv.open_database import open_database
from lsmkv.options import Options

try:
    from torch.utils.data import Dataset
except ImportError as error:
    raise Error("this module needs PyTorch: pip install 'lsmkv[torch]'") from error


class KeyValueDataset(Dataset):  # type: ignore[misc]
    """The entries of a database as a dataset: item i is `decode(key, value)` of the i-th key.

    Every worker process of a `DataLoader` opens a read-only handle of its own, also beside a process that writes. The
    keys are those at the time of the construction, or `keys`; a key that is deleted later raises `KeyError`. They take
    their own size and 8 bytes each, and no worker copies them. A batch is read by one `multi_get`. `options` are those
    of `lsmkv.open`; `keyspace` names another one than the default.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        decode: Callable[[bytes, bytes], Any],
        *,
        keys: Iterable[bytes] | None = None,
        keyspace: str | None = None,
        **options: Any,
    ) -> None:
        self._path = os.path.abspath(path)
        self._decode = decode
        self._keyspace = keyspace
        self._options = Options.of(None, options)
        self._handle: DB | None = None
        self._pid = 0
        # One object, not one for each key: counting references would write to the memory that forked workers share.
        ends, whole = array("q", [0]), bytearray()
        for key in self._reader().keys() if keys is None else keys:
            whole += key
            ends.append(len(whole))
        self._keys, self._ends = bytes(whole), ends

    def _reader(self) -> Any:
        """The handle of this process. One that a fork has left behind cannot be used."""
        if self._handle is None or self._pid != os.getpid():
            self._handle, self._pid = open_database(self._path, "r", self._options), os.getpid()
        return self._handle if self._keyspace is None else self._handle.keyspace(self._keyspace, create=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handle": None}

    def __len__(self) -> int:
        return len(self._ends) - 1

    def key(self, index: int) -> bytes:
        """Return the key of an item. Raises `IndexError` if there is none."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._keys[self._ends[index] : self._ends[index + 1]]

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Called by a `DataLoader` for a batch."""
        keys = [self.key(index) for index in indices]
        values = self._reader().multi_get(keys)
        missing = next((key for key, value in zip(keys, values, strict=True) if value is None), None)
        if missing is not None:
            raise KeyError(missing)
        return [self._decode(key, value) for key, value in zip(keys, values, strict=True)]
