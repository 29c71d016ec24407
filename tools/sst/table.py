"""An SSTable as the tool sees it: lsmkv_ext's own table, with names and figures the commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lsmkv_tool.directory import regular
from lsmkv_tool.exits import opening

if TYPE_CHECKING:
    from lsmkv_ext.errors import CorruptionError

Found = tuple[bytes, bytes | None, int]


class Table:
    """An open table. Opening checks all but the data blocks; reading checks those."""

    def __init__(self, path: str, global_seq: int = 0) -> None:
        from lsmkv_ext.table.table import Table as Raw

        regular(path)
        self.path = path
        with opening(path):
            self.raw = Raw(path, global_seq=global_seq)
        self.size: int = self.raw.file_size
        self.entries: int = self.raw.n_entries
        self.deletes: int = self.raw.n_deletes
        self.blocks: int = self.raw.n_blocks
        self.smallest: bytes | None = self.raw.smallest
        self.largest: bytes | None = self.raw.largest
        self.min_seq: int = self.raw.min_seq
        self.max_seq: int = self.raw.max_seq
        self.range_tombstones: list[tuple[bytes, bytes, int]] = self.raw.range_tombstones

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        del self.raw  # the last reference closes the file

    @property
    def properties(self) -> dict[str, Any]:
        keys = ("smallest", "largest", "largest_exclusive")
        return {name: value for name, value in self.raw.properties.items() if name not in keys}

    @property
    def ratio(self) -> float | None:
        """Raw bytes of keys and values per byte of data blocks."""
        found = self.raw.properties
        stored = found["data_bytes"]
        return (found["key_bytes"] + found["value_bytes"]) / stored if stored else None

    @property
    def filter(self) -> dict[str, Any]:
        found = self.raw.filter_info
        keys = found["n_keys"]
        return {
            "usable": found["usable"],
            "problem": found["problem"],
            "bits_per_key": found["bytes"] * 8 / keys if keys and found["bytes"] else None,
            "asked_bits_per_key": found["millibits"] / 1000,
            "k": found["k"],
            "keys": keys,
            "blocks": found["n_blocks"],
            "bytes": found["bytes"],
            "level": found["level"],
            "seed": f"{found['seed']:016x}",
            "prefix": _prefix(found["prefix_kind"], found["prefix_arg"]),
            "fill": found["fill_ratio"] if found["usable"] else None,
            "expected_fpr": found["designed_fpr"] if found["usable"] else None,
        }

    def covers(self, key: bytes) -> bool:
        if self.smallest is None or self.largest is None or key < self.smallest:
            return False
        return key < self.largest or (key == self.largest and not self.raw.largest_exclusive)

    def find(self, key: bytes) -> tuple[bytes | None, int] | None:
        """(value or None where deleted, sequence number), past the filter; None without an entry."""
        found: tuple[bytes | None, int] | None = self.raw.get(key, fill_cache=False)
        return found

    def probe(self, key: bytes) -> dict[str, Any]:
        from lsmkv_ext.table.table_inspect import filter_probe_bits

        return filter_probe_bits(self.raw, key)

    def positives(self, n: int, seed: int) -> int:
        from lsmkv_ext.table.table_inspect import filter_positives

        return filter_positives(self.raw, n, seed)

    def fills(self, limit: int) -> list[float]:
        from lsmkv_ext.table.table_inspect import filter_fills

        return filter_fills(self.raw, limit)

    def scan(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Found]:
        return iter(self.raw.entries(start, stop))

    def salvage(
        self, start: bytes | None, stop: bytes | None, problems: list[CorruptionError]
    ) -> Iterator[Found]:
        """Like `scan`, but steps over blocks that cannot be read and notes each in `problems`."""
        from lsmkv_ext.errors import CorruptionError

        while True:
            last = None
            try:
                for found in self.scan(start, stop):
                    last = found[0]
                    yield found
                return
            except CorruptionError as error:
                if all(error.offset != other.offset for other in problems):
                    problems.append(error)
            # The block that was to come next is the damaged one; go on behind its separator.
            block = self.raw.find_block((start or b"") if last is None else last + b"\0")
            if block is None:
                return
            start = self.raw.separators()[block] + b"\0"

    def sections(self) -> list[dict[str, Any]]:
        from lsmkv_ext.table.table_inspect import sections

        return [{"part": name, "offset": offset, "stored": size} for name, offset, size in sections(self.raw)]

    def block_rows(self, key: Callable[[bytes], object]) -> list[dict[str, Any]]:
        """One row per data block; a damaged one has a `problem`."""
        from lsmkv_ext.table.table_inspect import describe_blocks

        return [
            {
                "block": i,
                "offset": block["offset"],
                "stored": block["size"],
                "raw": block["raw_size"],
                "entries": block["n_entries"],
                "codec": None if block["problem"] else block["compression"] or "none",
                "separator": key(block["separator"]),
                "problem": block["problem"],
            }
            for i, block in enumerate(describe_blocks(self.raw))
        ]

    def block_entries(self, block: int) -> Iterator[Found]:
        bounds: Sequence[bytes] = self.raw.separators()
        # The smallest key above the separator before, up to and with this block's own.
        start = bounds[block - 1] + b"\0" if block else None
        return self.scan(start, bounds[block] + b"\0")


def _prefix(kind: int, argument: int) -> str | None:
    if kind == 0:
        return None
    return f"first {argument} bytes" if kind == 1 else f"up to byte {argument:#04x}"


def open_table(path: str, global_seq: int = 0) -> Table:
    return Table(path, global_seq)


def problems(path: str, deep: bool) -> list[dict[str, Any]]:
    """What is wrong with a table, damage that keeps it from opening included; empty where it is sound."""
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.table.verify import verify_table

    try:
        with open_table(path) as table:
            found = verify_table(table.raw, deep=deep)
    except CorruptionError as error:
        found = [{"offset": error.offset, "what": str(error)}]
    return [
        {"file": path, "verdict": "corrupt", "offset": finding["offset"], "problem": finding["what"]}
        for finding in found
    ]


def write_table(
    path: str,
    pairs: Iterable[tuple[bytes, bytes | None]],
    bits_per_key: float,
    block_size: int,
    compression: str,
    seed: int | None = None,
) -> None:
    """A new table from sorted pairs; a value of None is a delete."""
    from lsmkv_ext.table.sst import SSTWriter

    codec = None if compression == "none" else compression
    options = {"bits_per_key": bits_per_key, "block_size": block_size, "compression": codec, "seed": seed}
    with SSTWriter(path, **options) as writer:
        for key, value in pairs:
            if value is None:
                writer.delete(key)
            else:
                writer.put(key, value)
