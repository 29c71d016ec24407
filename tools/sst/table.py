"""Access to one table file: properties, filter, blocks, entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from lsmkv_tool.directory import stat_file
from lsmkv_tool.exits import open_errors
from lsmkv_tool.problems import split_place, value_problem

if TYPE_CHECKING:
    from lsmkv_ext.errors import CorruptionError

Entry = tuple[bytes, bytes | None, int, int]  # key, value or None, sequence number, expiry in milliseconds or 0


class Table:
    """An open table. Opening verifies everything but the data blocks; reading verifies each block it needs."""

    def __init__(self, path: str, global_seq: int = 0) -> None:
        from lsmkv.version.value_logs import ingested_log
        from lsmkv_ext.table.table import Table as Raw

        stat_file(path)
        self.path = path
        with open_errors(path):
            self.raw = Raw(path, global_seq=global_seq)
            if own_log := ingested_log(self.raw):  # of a table inside a database
                self.raw = Raw(path, global_seq=global_seq, own_log=own_log)
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

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        del self.raw  # the last reference closes the file

    @property
    def properties(self) -> dict[str, Any]:
        keys = ("smallest", "largest", "largest_exclusive")
        return {name: value for name, value in self.raw.properties.items() if name not in keys}

    @property
    def ratio(self) -> float | None:
        """Compression ratio: bytes of keys and values per byte of data blocks."""
        found = self.raw.properties
        stored = found["data_bytes"]
        return (found["key_bytes"] + found["value_bytes"]) / stored if stored else None

    @property
    def filter(self) -> dict[str, Any]:
        found = self.raw.filter_info
        keys = found["n_keys"]
        return {
            "kind": found["kind"],
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

    def find(self, key: bytes) -> tuple[bytes | None, int, int] | None:
        """Return the entry without its key, or None if there is none. A tombstone has the value None.

        Does not consult the filter.
        """
        found: tuple[bytes | None, int, int] | None = self.raw.find(key, fill_cache=False)
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

    def scan(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Entry]:
        return iter(self.raw.entries(start, stop, expiries=True))

    def salvage(self, start: bytes | None, stop: bytes | None, problems: list[CorruptionError]) -> Iterator[Entry]:
        """Like `scan`, but skip damaged blocks and add their errors to `problems`."""
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
            # The block after the last key read is the damaged one: continue after its separator.
            block = self.raw.find_block((start or b"") if last is None else last + b"\0")
            if block is None:
                return
            start = self.raw.separators()[block] + b"\0"

    def sections(self) -> list[dict[str, Any]]:
        from lsmkv_ext.table.table_inspect import sections

        return [{"part": name, "offset": offset, "stored": size} for name, offset, size in sections(self.raw)]

    def block_rows(self, key: Callable[[bytes], object]) -> list[dict[str, Any]]:
        """Return one row per data block. A damaged block has a `problem`."""
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

    def block_entries(self, block: int) -> Iterator[Entry]:
        bounds: Sequence[bytes] = self.raw.separators()
        # A block holds the keys above the previous separator, up to and including its own.
        start = bounds[block - 1] + b"\0" if block else None
        return self.scan(start, bounds[block] + b"\0")


def _prefix(kind: int, argument: int) -> str | None:
    if kind == 0:
        return None
    if kind == 3:
        lengths = [str(length) for length in argument.to_bytes(4, "little") if length]
        return (
            f"first {', '.join(lengths[:-1])} and {lengths[-1]} bytes" if lengths[1:] else f"first {lengths[0]} bytes"
        )
    return f"first {argument} bytes" if kind == 1 else f"up to byte {argument:#04x}"


def filter_state(filter_: dict[str, Any]) -> str:
    """Return "ok", "none" or "damaged" for `Table.filter`."""
    if filter_["usable"]:
        return "ok"
    return "none" if filter_["problem"] == "absent" else "damaged"


def op_name(value: bytes | None) -> str:
    return "delete" if value is None else "put"


def verify_file(path: str, deep: bool, values: bool = True) -> list[dict[str, Any]]:
    """Verify a table, and the values in value logs that it points to. Return one row per problem, or one that says
    "ok".
    """
    from lsmkv_ext.errors import CorruptionError
    from lsmkv_ext.table.verify import value_problems, verify_table

    try:
        with Table(path) as table:
            found = verify_table(table.raw, deep=deep)
            if values and not found and table.raw.meta.value_logs:
                found = [{"offset": None, "what": value_problem(*each)} for each in value_problems(table.raw)]
    except CorruptionError as error:
        found = [{"offset": error.offset, "what": split_place(str(error), path)[0]}]
    if not found:
        return [{"file": path, "verdict": "ok", "offset": None, "problem": None}]
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
    """Write a table from sorted pairs. A value of None is a tombstone."""
    from lsmkv_ext.table.sst_writer import SSTWriter

    codec = None if compression == "none" else compression
    with SSTWriter(path, bits_per_key=bits_per_key, block_size=block_size, compression=codec, seed=seed) as writer:
        for key, value in pairs:
            if value is None:
                writer.delete(key)
            else:
                writer.put(key, value)
