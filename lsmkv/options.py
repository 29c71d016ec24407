"""Options: one frozen value, validated when it is created.

The error for a wrong name suggests a right one; the error for a wrong value says what is allowed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import xxhash

from lsmkv import notebook
from lsmkv.errors import CorruptionError, OptionError
from lsmkv.memory_split import split
from lsmkv.option_hints import hint
from lsmkv_ext.limits import MAX_LEVELS as MAX_LEVELS
from lsmkv_ext.port.compression import CODECS

KIB = 1 << 10
MIB = 1 << 20
# The default threshold of large values. In a database of format 1 the default counts as None.
LARGE_VALUE = 8 * KIB

MAX_BITS_PER_KEY = 64.0
MAX_PREFIXES = 4
MAX_TTL = 1e12  # seconds: some thirty thousand years

Compression = str | None
PrefixExtractor = int | bytes | tuple[int, ...] | None


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a database. Frozen; every option has a default that suits 10 thousand to 100 million records.

    docs/options.md describes each one. Raises `OptionError` for an unknown name or a wrong value.

    >>> lsmkv.Options(bits_per_key=12).bits_per_key
    12.0
    """

    memory: int | None = None
    write_buffer_size: int = 64 * MIB
    max_write_buffers: int = 3
    block_cache_size: int = 64 * MIB
    row_cache_size: int | None = None
    block_size: int = 4096
    compression: Compression | tuple[Compression, ...] = "lz4"
    bits_per_key: float | tuple[float, ...] | str = 10.0
    filter: str | tuple[str, ...] = "bloom"
    filter_memory: int | None = None
    target_fpr: float | None = None
    optimize_filters_for_hits: bool | str = False
    prefix_extractor: PrefixExtractor = None
    default_ttl: float | None = None
    large_value_threshold: int | None = LARGE_VALUE
    large_value_compression: Compression = "lz4"
    value_gc_ratio: float = 1.5
    verify_filters: bool = True
    filter_debt_ratio: float | None = None
    filter_shadow_ratio: float = 0.0
    cache_index_and_filter_blocks: bool = False
    target_file_size: int = 64 * MIB
    level_size_ratio: float = 10.0
    l0_compaction_trigger: int = 4
    l0_slowdown_trigger: int = 20
    l0_stop_trigger: int = 36
    max_background_jobs: int = 2
    max_open_files: int | None = None
    wal: str | None = "mmap"
    sync: bool = False
    sync_interval_ms: int = 0
    recovery: str = "strict"
    stats_export: bool = False

    def __new__(cls, **values: Any) -> Options:
        # Before the generated __init__, whose TypeError suggests no better name.
        for name in values:
            _require_known(name)
        made = super().__new__(cls)
        # The names that were given: `memory` decides about the others.
        made.__dict__["_given"] = frozenset(values)
        return made

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        if self.memory is not None:
            self._split_memory(self.memory)
        if not self.l0_compaction_trigger <= self.l0_slowdown_trigger <= self.l0_stop_trigger:
            raise OptionError(
                "l0_compaction_trigger <= l0_slowdown_trigger <= l0_stop_trigger must hold, got "
                f"{self.l0_compaction_trigger}, {self.l0_slowdown_trigger}, {self.l0_stop_trigger}"
            )
        if self.wal is None and (self.sync or self.sync_interval_ms):
            raise OptionError("sync and sync_interval_ms need a log: they cannot be combined with wal=None")

    def _split_memory(self, memory: int) -> None:
        """Set the sizes that were not given."""
        given = self._given
        if "cache_index_and_filter_blocks" in given and not self.cache_index_and_filter_blocks:
            raise OptionError("memory includes indexes and filters: cache_index_and_filter_blocks cannot be False")
        object.__setattr__(self, "cache_index_and_filter_blocks", True)
        parts = split(
            memory,
            self.max_write_buffers,
            self.write_buffer_size if "write_buffer_size" in given else None,
            self.block_cache_size if "block_cache_size" in given else None,
            self.row_cache_size or 0,
        )
        object.__setattr__(self, "write_buffer_size", parts.write_buffer_size)
        object.__setattr__(self, "block_cache_size", parts.block_cache_size)

    @property
    def _given(self) -> frozenset[str]:
        names: frozenset[str] = self.__dict__["_given"]
        return names

    @property
    def filter_limit(self) -> int | None:
        """The most bytes that the filters of all keyspaces take together; None without `memory`.

        >>> lsmkv.Options(memory=256 << 20).filter_limit == lsmkv.Options(memory=256 << 20).block_cache_size // 2
        True
        """
        return None if self.memory is None else self.block_cache_size // 2

    @property
    def row_bytes(self) -> int:
        """The bytes of the row cache: `row_cache_size`, or a share of `block_cache_size`.

        >>> lsmkv.Options(block_cache_size=16 << 20).row_bytes
        1048576
        """
        if self.row_cache_size is not None:
            return self.row_cache_size
        return min(LARGEST_ROW_SHARE, self.block_cache_size // 16)

    @property
    def large_values(self) -> tuple[int, int] | None:
        """The threshold of large values and the number of their compression, or None.

        >>> lsmkv.Options(large_value_threshold=4096).large_values
        (4096, 1)
        """
        if self.large_value_threshold is None:
            return None
        return self.large_value_threshold, CODECS[self.large_value_compression]

    @property
    def needs_zstd(self) -> bool:
        """Whether tables or large values may be compressed with zstd, which needs format 2.

        >>> lsmkv.Options(compression=["lz4", "zstd"]).needs_zstd
        True
        """
        tables = self.compression if isinstance(self.compression, tuple) else (self.compression,)
        return "zstd" in (*tables, self.large_value_compression)

    @property
    def needs_format_2(self) -> bool:
        """Whether files written with these options need format 2 of the database.

        >>> lsmkv.Options(prefix_extractor=[4, 8]).needs_format_2
        True
        """
        return isinstance(self.prefix_extractor, tuple) or self.needs_zstd or self.needs_fuse

    @property
    def block_bytes(self) -> int:
        """The bytes of `block_cache_size` that remain for blocks.

        >>> lsmkv.Options(block_cache_size=16 << 20).block_bytes
        15728640
        """
        return self.block_cache_size - (self.row_bytes if self.row_cache_size is None else 0)

    @classmethod
    def of(cls, base: Options | Mapping[str, Any] | None, changes: Mapping[str, Any]) -> Options:
        """Return `base`, or the defaults, with `changes` applied.

        >>> lsmkv.Options.of({"block_size": 8192}, {"compression": None}).block_size
        8192
        """
        if base is None:
            base = cls()
        elif isinstance(base, Mapping):
            base = cls().replace(**base)
        elif not isinstance(base, cls):
            raise OptionError(f"options must be an Options or a mapping, not {type(base).__name__}")
        return base.replace(**changes) if changes else base

    def replace(self, **changes: Any) -> Options:
        """Return a copy with `changes` applied. Raises `OptionError` as the constructor does.

        >>> lsmkv.Options().replace(block_size=8192).block_size
        8192
        """
        kept = {name: getattr(self, name) for name in self._given}
        return type(self)(**{**kept, **changes})

    def replace_live(self, **changes: Any) -> Options:
        """Return a copy as `replace` does; raise `OptionError` for an option that needs a reopen.

        >>> lsmkv.Options().replace_live(bits_per_key=12).bits_per_key
        12.0
        """
        for name in changes:
            _require_known(name)
            if name not in LIVE:
                raise OptionError(f"{name} cannot be changed on an open database; these can: {', '.join(sorted(LIVE))}")
        if "memory" in changes and (self.memory is None) != (changes["memory"] is None):
            # The tables that are open would count or not count, whatever the option says.
            raise OptionError("memory cannot be turned on or off on an open database, only changed")
        return self.replace(**changes)

    def for_keyspace(self, given: Mapping[str, Any]) -> Options:
        """Return a copy with the stored options of a keyspace applied; those that this release does not know are
        ignored.

        >>> lsmkv.Options().for_keyspace({"block_size": 8192}).block_size
        8192
        """
        known = {name: value for name, value in given.items() if name in OF_KEYSPACE}
        return self.replace(**_from_json(known)) if known else self

    def compression_at(self, level: int) -> int:
        """Return the compression of a level: 0 none, 1 LZ4, 2 zstd. The last entry of a list continues.

        >>> lsmkv.Options(compression=[None, "lz4"]).compression_at(6)
        1
        """
        value = self.compression
        if isinstance(value, tuple):
            value = value[min(level, len(value) - 1)]
        return CODECS[value]

    @property
    def needs_fuse(self) -> bool:
        """Whether tables may get fuse filters, which need format 2.

        >>> lsmkv.Options(filter=["bloom", "fuse"]).needs_fuse
        True
        """
        return self.filter != "bloom" and set(self.filter) != {"bloom"}

    @property
    def prefix(self) -> tuple[int, int]:
        """The prefix extractor as (kind, argument): 0 none, 1 first n bytes, 2 up to a separator byte, 3 several
        lengths, one per byte of the argument.

        >>> lsmkv.Options(prefix_extractor=b":").prefix
        (2, 58)
        """
        if self.prefix_extractor is None:
            return (0, 0)
        if isinstance(self.prefix_extractor, bytes):
            return (2, self.prefix_extractor[0])
        if isinstance(self.prefix_extractor, tuple):
            return (3, int.from_bytes(self.prefix_extractor, "little"))
        return (1, self.prefix_extractor)

    def _repr_html_(self) -> str:
        rows = [(f.name, repr(getattr(self, f.name)), repr(f.default)) for f in dataclasses.fields(self)]
        return notebook.table(rows, ("option", "value", "default"))

    def to_dict(self) -> dict[str, Any]:
        """Return the options as plain data, for JSON.

        >>> lsmkv.Options().to_dict()["compression"]
        'lz4'
        """
        return to_json(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Options:
        """Return the options that `to_dict` described. Raises `OptionError` as the constructor does.

        >>> lsmkv.Options.from_dict({"block_size": 8192}).block_size
        8192
        """
        return cls().replace(**_from_json(values))

    def encode(self) -> bytes:
        """Return the bytes of the OPTIONS file: a head line with format, length and checksum, then JSON.

        >>> lsmkv.Options().encode().startswith(b"lsmkv-options 1 ")
        True
        """
        values = self.to_dict()
        if self.memory is not None:
            # The split is made anew by the one who reads them.
            values = {name: value for name, value in values.items() if name in self._given or name not in OF_MEMORY}
        body = (json.dumps(values, indent=1, sort_keys=True) + "\n").encode()
        return _options_head(body) + body

    @classmethod
    def decode(cls, data: bytes, file: str = "OPTIONS") -> Options:
        """Return the options of an OPTIONS file. Raises `CorruptionError`, which names `file`.

        >>> lsmkv.Options.decode(lsmkv.Options().encode()) == lsmkv.Options()
        True
        """
        if len(data) > MAX_OPTIONS_BYTES:
            raise CorruptionError(f"options of {len(data)} bytes, at most {MAX_OPTIONS_BYTES} are valid", file, 0)
        head, newline, body = data.partition(b"\n")
        if head + newline != _options_head(body):
            raise CorruptionError("options do not match their head line", file, 0)
        try:
            values = json.loads(body)
            if not values.keys() <= _CHECKS.keys():
                # No suggestion of a better name: nobody typed these.
                raise ValueError("unknown options")
            return cls.from_dict(values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(f"options cannot be read: {error}", file, len(head) + 1) from error


MAX_OPTIONS_BYTES = 64 * KIB
LARGEST_ROW_SHARE = 4 * MIB

# Options that `memory` sets if they are not given.
OF_MEMORY = frozenset({"write_buffer_size", "block_cache_size", "cache_index_and_filter_blocks"})

# Options that a keyspace may have of its own: those of its tables. The others concern what keyspaces share.
OF_KEYSPACE = frozenset(
    {
        "block_size",
        "compression",
        "bits_per_key",
        "filter",
        "filter_memory",
        "target_fpr",
        "optimize_filters_for_hits",
        "prefix_extractor",
        "default_ttl",
        "large_value_threshold",
        "large_value_compression",
        "verify_filters",
        "filter_debt_ratio",
        "filter_shadow_ratio",
        "target_file_size",
        "level_size_ratio",
        "l0_compaction_trigger",
        "l0_slowdown_trigger",
        "l0_stop_trigger",
    }
)

# Options that apply from the next memtable, table or decision on, without a reopen.
LIVE = OF_KEYSPACE | {
    "value_gc_ratio",
    "memory",
    "write_buffer_size",
    "max_write_buffers",
    "block_cache_size",
    "row_cache_size",
    "sync_interval_ms",
}


def keyspace_options(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The options given for a keyspace, checked, as plain data. Raises OptionError for one that is not its own."""
    for name in changes:
        _require_known(name)
        if name not in OF_KEYSPACE:
            own = ", ".join(sorted(OF_KEYSPACE))
            raise OptionError(f"{name} is an option of the whole database; a keyspace has its own {own}")
    checked = Options().replace(**changes)
    # As the manifest returns them: tuples become lists.
    plain: dict[str, Any] = json.loads(json.dumps(to_json({name: getattr(checked, name) for name in changes})))
    return plain


def check_name(name: str) -> None:
    """Raises unless `name` can be that of a keyspace."""
    if not isinstance(name, str):
        raise TypeError(f"a keyspace's name is a str, not {type(name).__name__}")
    if not 0 < len(name.encode()) <= 255:
        raise ValueError("a keyspace's name has 1 to 255 bytes of UTF-8")


def to_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Options as plain data. JSON has no bytes."""
    prefix = values.get("prefix_extractor")
    return {**values, "prefix_extractor": {"separator": prefix[0]}} if isinstance(prefix, bytes) else dict(values)


def _from_json(values: Mapping[str, Any]) -> dict[str, Any]:
    prefix = values.get("prefix_extractor")
    return {**values, "prefix_extractor": bytes([prefix["separator"]])} if isinstance(prefix, dict) else dict(values)


def _options_head(body: bytes) -> bytes:
    return b"lsmkv-options 1 %d %016x\n" % (len(body), xxhash.xxh3_64_intdigest(body))


def _require_known(name: str) -> None:
    if name in _CHECKS:
        return
    raise OptionError(f"unknown option {name!r}{hint(name, _CHECKS)}")


Check = Callable[[str, Any], Any]


def _refuse(name: str, value: object, allowed: str) -> OptionError:
    return OptionError(f"{name} must be {allowed}, not {value!r}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _integer(low: int, high: int) -> Check:
    def check(name: str, value: Any) -> int:
        if not _is_int(value) or not low <= value <= high:
            raise _refuse(name, value, f"an integer from {low} to {high}")
        return int(value)

    return check


def _number(low: float, high: float) -> Check:
    def check(name: str, value: Any) -> float:
        if not _is_number(value) or not low <= value <= high:
            raise _refuse(name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    return check


def _optional(inner: Check) -> Check:
    return lambda name, value: None if value is None else inner(name, value)


def _boolean(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _refuse(name, value, "True or False")
    return value


def _one_of(*allowed: object) -> Check:
    def check(name: str, value: Any) -> Any:
        for choice in allowed:
            if type(value) is type(choice) and value == choice:
                return value
        raise _refuse(name, value, "one of " + ", ".join(map(repr, allowed)))

    return check


def _per_level(name: str, value: Any, item: Check) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        if not 1 <= len(value) <= MAX_LEVELS:
            raise _refuse(name, value, f"a list of 1 to {MAX_LEVELS} entries, one per level")
        return tuple(item(name, entry) for entry in value)
    return item(name, value)


def _compression(name: str, value: Any) -> Any:
    return _per_level(name, value, _one_of(*CODECS))


def _bits_per_key(name: str, value: Any) -> Any:
    if value == "auto":
        return value
    if isinstance(value, str):
        raise _refuse(name, value, 'a number, a list of numbers per level, or "auto"')
    return _per_level(name, value, _number(0.0, MAX_BITS_PER_KEY))


def _filter(name: str, value: Any) -> Any:
    return _per_level(name, value, _one_of("bloom", "fuse", "auto"))


def _prefix_extractor(name: str, value: Any) -> PrefixExtractor:
    if value is None:
        return None
    if isinstance(value, bytes) and len(value) == 1:
        return value
    if _is_int(value) and 1 <= value <= 65535:
        return int(value)
    if isinstance(value, list | tuple) and 1 <= len(value) <= MAX_PREFIXES:
        lengths = sorted({int(n) for n in value if _is_int(n) and 1 <= n <= 255})
        if len(lengths) == len(value):
            return tuple(lengths) if len(lengths) > 1 else lengths[0]
    allowed = f"None, a number of bytes from 1 to 65535, a list of 1 to {MAX_PREFIXES} different lengths from 1 to 255"
    raise _refuse(name, value, f"{allowed}, or a separator of one byte")


def _seconds(name: str, value: Any) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_number(seconds) or not 0.001 <= seconds <= MAX_TTL:
        raise _refuse(name, value, f"None, or 0.001 to {MAX_TTL:g} seconds as a number or timedelta")
    return float(seconds)


_CHECKS: dict[str, Check] = {
    "memory": _optional(_integer(64 * KIB, 1 << 50)),
    "write_buffer_size": _integer(4 * KIB, 4 << 30),
    "max_write_buffers": _integer(2, 64),
    "block_cache_size": _integer(0, 1 << 50),
    "row_cache_size": _optional(_integer(0, 1 << 40)),
    "block_size": _integer(256, 4 * MIB),
    "compression": _compression,
    "bits_per_key": _bits_per_key,
    "filter": _filter,
    "filter_memory": _optional(_integer(0, 1 << 50)),
    "target_fpr": _optional(_number(1e-6, 1.0)),
    "optimize_filters_for_hits": _one_of(False, True, "auto"),
    "prefix_extractor": _prefix_extractor,
    "default_ttl": _optional(_seconds),
    "large_value_threshold": _optional(_integer(64, 1 << 30)),
    "large_value_compression": _one_of(*CODECS),
    "value_gc_ratio": _number(1.1, 100.0),
    "verify_filters": _boolean,
    "filter_debt_ratio": _optional(_number(0.0, 1.0)),
    "filter_shadow_ratio": _number(0.0, 1.0),
    "cache_index_and_filter_blocks": _boolean,
    "target_file_size": _integer(4 * KIB, 64 << 30),
    "level_size_ratio": _number(2.0, 100.0),
    "l0_compaction_trigger": _integer(1, 1000),
    "l0_slowdown_trigger": _integer(1, 10000),
    "l0_stop_trigger": _integer(1, 10000),
    "max_background_jobs": _integer(1, 64),
    "max_open_files": _optional(_integer(8, 1 << 30)),
    "wal": _one_of("mmap", "write", None),
    "sync": _boolean,
    "sync_interval_ms": _integer(0, 3_600_000),
    "recovery": _one_of("strict", "salvage"),
    "stats_export": _boolean,
}
