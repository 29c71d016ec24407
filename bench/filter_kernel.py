"""Measures the filter kernels: false positive rates, nanoseconds per probe, and calls from Python.

    python -m lsmkv_bench.filter_kernel [--quick] [--json]

Rates come from four kinds of keys that are not in the filter, with 95 % intervals. Times are CPU times of the
thread. Times of single probes exclude hashing; times of calls from Python include everything.
"""

from __future__ import annotations

import itertools
import math
import platform
import random
import statistics
import sys
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from lsmkv_ext.filter.bloom import BlockedBloom, simd, use_simd
from lsmkv_ext.filter.curve import bits_for_fpr, designed_fpr
from lsmkv_ext.filter.fuse import build_fuse, probe_fuse
from lsmkv_ext.port.codecs import hash64

from .native.classic_bloom import BlockedFilter, ClassicFilter, FuseFilter, Probes
from .standalone import make_parser, print_figures, thread_seconds

# Bits per key to false positive rate. A correct kernel is within 5 %.
EXPECTED = {5: 0.093, 6: 0.058, 8: 0.023, 10: 0.0096, 12: 0.00415, 14: 0.00184, 16: 0.00084, 20: 0.00021}

# Widths of fingerprints.
FUSE_WIDTHS = (4, 8, 12)

KeyMaker = Callable[[int, random.Random], bytes]


def _uuid(i: int, rng: random.Random) -> bytes:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4)).encode()


def _url(i: int, rng: random.Random) -> bytes:
    return b"https://www.example.org/shop/%d/item?id=%d&ref=home" % (i % 977, i)


KINDS: dict[str, KeyMaker] = {
    "random": lambda i, rng: rng.randbytes(16),
    "decimal": lambda i, rng: b"%016d" % i,
    "uuid": _uuid,
    "url": _url,
}


def _keys(kind: str, start: int, stop: int, seed: int) -> Iterator[bytes]:
    make, rng = KINDS[kind], random.Random(seed)
    return (make(i, rng) for i in range(start, stop))


def rates(n_keys: int, n_probes: int, wanted_hits: int) -> list[dict[str, Any]]:
    """One row per kind of key and bits per key.

    Each key probes enough filters, with different seeds, for about `wanted_hits` false positives at any rate.
    """
    return [row for kind in KINDS for row in _rates_of(kind, n_keys, n_probes, wanted_hits)]


def _rates_of(kind: str, n_keys: int, n_probes: int, wanted_hits: int) -> Iterator[dict[str, Any]]:
    members = list(_keys(kind, 0, n_keys, seed=1))
    filters = {
        bits: [
            BlockedBloom(n_keys, bits_per_key=bits, seed=99 + i)
            for i in range(math.ceil(wanted_hits / (expected * n_probes)))
        ]
        for bits, expected in EXPECTED.items()
    }
    missing = 0
    for bloom in itertools.chain(*filters.values()):
        bloom.add_many(members)
        missing += bloom.test_many(members).count(False)
    hits = dict.fromkeys(EXPECTED, 0)
    probes = _keys(kind, n_keys, n_keys + n_probes, seed=2)
    while chunk := list(itertools.islice(probes, 100_000)):
        for bits, blooms in filters.items():
            hits[bits] += sum(bloom.test_many(chunk).count(True) for bloom in blooms)
    for bits, expected in EXPECTED.items():
        n = n_probes * len(filters[bits])
        low, high = _interval(hits[bits], n)
        yield {
            "keys": kind,
            "bits_per_key": bits,
            "probes": n,
            "hits": hits[bits],
            "observed": hits[bits] / n,
            "low": low,
            "high": high,
            "expected": expected,
            "of_expected": hits[bits] / n / expected,
            "designed": designed_fpr(bits),
            "false_negatives": missing,
        }


def _interval(hits: int, n: int) -> tuple[float, float]:
    """The 95 % interval of the rate; `hits` is Poisson distributed."""
    half = 1.96 * math.sqrt(hits)
    return (hits - half) / n, (hits + half) / n


def _wrong_rates(rows: list[dict[str, Any]]) -> list[str]:
    """The rows whose whole interval is more than 5 % off the expected rate."""
    return [
        f"{row['keys']} at {row['bits_per_key']} bits"
        for row in rows
        if row["low"] > 1.05 * row["expected"] or row["high"] < 0.95 * row["expected"]
    ]


def fuse_rates(n_keys: int, n_probes: int) -> list[dict[str, Any]]:
    """One row per kind of key and width of fuse filters."""
    return [row for kind in KINDS for row in _fuse_rates_of(kind, n_keys, n_probes)]


def _fuse_rates_of(kind: str, n_keys: int, n_probes: int) -> Iterator[dict[str, Any]]:
    members = [hash64(key, 99) for key in _keys(kind, 0, n_keys, seed=1)]
    built = {width: build_fuse(members, width) for width in FUSE_WIDTHS}
    hits = dict.fromkeys(FUSE_WIDTHS, 0)
    probes = (hash64(key, 99) for key in _keys(kind, n_keys, n_keys + n_probes, seed=2))
    while chunk := list(itertools.islice(probes, 100_000)):
        for width, found in built.items():
            assert found is not None
            hits[width] += sum(probe_fuse(found[0], found[2], chunk)[1])
    for width, found in built.items():
        assert found is not None
        geometry, _, bits = found
        low, high = _interval(hits[width], n_probes)
        yield {
            "keys": kind,
            "width": width,
            "bits_per_key": len(bits) * 8 / n_keys,
            "probes": n_probes,
            "observed": hits[width] / n_probes,
            "low": low,
            "high": high,
            "expected": 2.0**-width,
            "of_expected": hits[width] / n_probes * 2.0**width,
            "false_negatives": sum(not each for verdicts in probe_fuse(geometry, bits, members) for each in verdicts),
        }


def fuse_times(key_counts: dict[str, int], n_probes: int, repeats: int) -> list[dict[str, Any]]:
    """Fuse filters of 8 bits beside Bloom filters of the same memory, in turns; medians."""
    probes = Probes(n_probes, 5)
    return [_fuse_times_of(name, n, probes, repeats) for name, n in key_counts.items()]


def _fuse_times_of(name: str, n: int, probes: Probes, repeats: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {}
    for seed in range(repeats):
        fuse = FuseFilter(n, 8, seed)
        for kind, each in (("fuse", fuse), ("bloom", BlockedFilter(fuse.nbytes, 9_000, seed))):
            for what, ns in (
                ("build", each.add_ns),
                ("verify", each.verify_ns),
                ("batch", _best(lambda f=each: f.batch_ns(probes), 3)),  # type: ignore[misc]
                ("single", _best(lambda f=each: f.single_ns(probes), 3)),  # type: ignore[misc]
            ):
                found.setdefault(f"{kind}_{what}_ns", []).append(ns)
        nbytes = fuse.nbytes
    row: dict[str, Any] = {"keys": name, "bytes": nbytes}
    row |= {what: statistics.median(times) for what, times in found.items()}
    for what in ("build", "batch", "single"):
        row[f"{what}_ratio"] = row[f"fuse_{what}_ns"] / row[f"bloom_{what}_ns"]
    return row


def _best(measure: Callable[[], float], repeats: int = 5) -> float:
    return min(measure() for _ in range(repeats))


def probe_times(sizes: dict[str, int], n_probes: int) -> list[dict[str, Any]]:
    """Negative probes at 10 bits per key, in blocked and classic filters of several sizes."""
    probes = Probes(n_probes, 5)
    rows = []
    for name, nbytes in sizes.items():
        blocked, classic = BlockedFilter(nbytes, 10_000, 1), ClassicFilter(nbytes, 7, 2)
        row = {
            "size": name,
            "bytes": nbytes,
            "add_ns": blocked.add_ns,
            "verify_ns": blocked.verify_ns,
            "batch_ns": _best(lambda b=blocked: b.batch_ns(probes)),  # type: ignore[misc]
            "single_ns": _best(lambda b=blocked: b.single_ns(probes)),  # type: ignore[misc]
            "classic_ns": _best(lambda c=classic: c.single_ns(probes)),  # type: ignore[misc]
        }
        row["classic_over_batch"] = row["classic_ns"] / row["batch_ns"]
        rows.append(row)
    return rows


def _portable_ns(nbytes: int, n_probes: int) -> tuple[float, float]:
    """(SIMD, portable) nanoseconds per key of `test_many`."""
    bloom = BlockedBloom(nbytes * 8 // 10, bits_per_key=10)
    keys = [b"%016d" % i for i in range(n_probes)]
    fast = _best(lambda: thread_seconds(lambda: bloom.test_many(keys))) / n_probes * 1e9
    use_simd(False)
    slow = _best(lambda: thread_seconds(lambda: bloom.test_many(keys))) / n_probes * 1e9
    use_simd(True)
    return fast, slow


def from_python(n_keys: int) -> list[dict[str, Any]]:
    """Adds and batch probes per second of the public class, and of rbloom if it is installed.

    rbloom uses Python's `hash`, which a bytes object caches: it is measured with and without cached hashes.
    """
    rows = [_speed("lsmkv", n_keys, _LsmkvFilter, fresh=True)]
    try:
        import rbloom
    except ImportError:
        print("rbloom is not installed, so there is no comparison with it", file=sys.stderr)
        return rows
    rows.append(_speed("rbloom, new keys", n_keys, rbloom.Bloom, fresh=True))
    rows.append(_speed("rbloom, hashed keys", n_keys, rbloom.Bloom, fresh=False))
    for row in rows[1:]:
        row["adds_of_lsmkv"] = rows[0]["adds_per_second"] / row["adds_per_second"]
        row["probes_of_lsmkv"] = rows[0]["probes_per_second"] / row["probes_per_second"]
    return rows


class _LsmkvFilter(BlockedBloom):
    """With rbloom's method names."""

    def update(self, keys: list[bytes]) -> None:
        self.add_many(keys)


def _speed(name: str, n: int, make: Callable[[int, float], Any], fresh: bool) -> dict[str, Any]:
    rng = random.Random(3)
    members = [rng.randbytes(16) for _ in range(n)]
    others = [rng.randbytes(16) for _ in range(n)]
    add_s, probe_s = math.inf, math.inf
    for _ in range(5):
        if fresh:
            members, others = ([bytes(bytearray(key)) for key in keys] for keys in (members, others))
        bloom = make(n, 0.01)
        add_s = min(add_s, thread_seconds(lambda b=bloom, k=members: b.update(k)))
        probe_s = min(probe_s, thread_seconds(lambda b=bloom, k=others: _test_all(b, k)))
    return {"filter": name, "adds_per_second": n / add_s, "probes_per_second": n / probe_s}


def _test_all(bloom: Any, keys: list[bytes]) -> list[bool]:
    return bloom.test_many(keys) if isinstance(bloom, BlockedBloom) else [key in bloom for key in keys]


def measure(quick: bool) -> dict[str, Any]:
    sizes = {"256 KiB": 256 << 10, "1 MiB": 1 << 20}
    if not quick:
        sizes["125 MB"] = 125_000_000
    fast, slow = _portable_ns(256 << 10, 100_000)
    return {
        "machine": {"cpu": platform.processor() or platform.machine(), "python": platform.python_version()},
        "simd": simd(),
        "bits_for_1_percent": bits_for_fpr(0.01),
        "false_positives": rates(50_000, 200_000, 400) if quick else rates(1_000_000, 4_000_000, 20_000),
        "fuse_false_positives": fuse_rates(50_000, 200_000) if quick else fuse_rates(1_000_000, 4_000_000),
        "fuse_times": fuse_times(
            {"100 thousand": 100_000}
            if quick
            else {"100 thousand": 100_000, "1 million": 1_000_000, "110 million": 110_000_000},
            200_000 if quick else 2_000_000,
            3 if quick else 5,
        ),
        "probes": probe_times(sizes, 200_000 if quick else 2_000_000),
        "test_many_ns": {"simd": fast, "portable": slow},
        "python": from_python(100_000 if quick else 1_000_000),
    }


def show(result: dict[str, Any]) -> None:
    print(f"SIMD: {result['simd']}\n\nFalse positives: observed, observed / expected (95 % interval)")
    print("bits  expected " + "".join(f"{kind:>24}" for kind in KINDS))
    rows = {(row["keys"], row["bits_per_key"]): row for row in result["false_positives"]}
    for bits, expected in EXPECTED.items():
        print(f"{bits:>4} {expected:>9.4%} " + "".join(_cell(rows[kind, bits]) for kind in KINDS))
    worst = max(result["false_positives"], key=lambda row: abs(row["of_expected"] - 1))
    where = f"{worst['keys']} at {worst['bits_per_key']} bits"
    print(f"largest deviation: {where}, {worst['of_expected']:.3f} of the expected rate")
    print(f"more than 5 % off: {', '.join(_wrong_rates(result['false_positives'])) or 'none'}")
    print(f"false negatives: {sum(row['false_negatives'] for row in result['false_positives'])}")
    print("\nNanoseconds per negative probe at 10 bits per key (CPU time, without hashing)")
    print("    size    batch   single    classic    classic/batch     add  verify")
    for row in result["probes"]:
        print(
            f"{row['size']:>8} {row['batch_ns']:8.1f} {row['single_ns']:8.1f} {row['classic_ns']:10.1f} "
            f"{row['classic_over_batch']:16.1f} {row['add_ns']:7.1f} {row['verify_ns']:7.1f}"
        )
    _show_fuse(result)
    both = result["test_many_ns"]
    print(f"\ntest_many, 256 KiB: {both['simd']:.0f} ns with SIMD, {both['portable']:.0f} ns without")
    print("\nFrom Python, 16-byte keys, 1 % rate")
    for row in result["python"]:
        adds, probes = row["adds_per_second"] / 1e6, row["probes_per_second"] / 1e6
        line = f"{row['filter']:>20}  {adds:6.1f} M adds/s {probes:6.1f} M probes/s"
        if "adds_of_lsmkv" in row:
            line += f"   (lsmkv: {row['adds_of_lsmkv']:.1f}x and {row['probes_of_lsmkv']:.1f}x)"
        print(line)


def _show_fuse(result: dict[str, Any]) -> None:
    print("\nFuse filters: observed false positives, observed / expected (95 % interval)")
    print("width  bits/key  expected " + "".join(f"{kind:>24}" for kind in KINDS))
    rows = {(row["keys"], row["width"]): row for row in result["fuse_false_positives"]}
    for width in FUSE_WIDTHS:
        first = rows["random", width]
        line = f"{width:>5} {first['bits_per_key']:9.2f} {first['expected']:>9.4%} "
        print(line + "".join(_cell(rows[kind, width]) for kind in KINDS))
    print(f"false negatives: {sum(row['false_negatives'] for row in result['fuse_false_positives'])}")
    print("\nNanoseconds per key and negative probe, fuse filter of 8 bits / Bloom filter of the same memory = ratio")
    print("          keys                  build                  batch                 single")
    for row in result["fuse_times"]:
        cells = (
            f"{row[f'fuse_{what}_ns']:7.1f} / {row[f'bloom_{what}_ns']:5.1f} = {row[f'{what}_ratio']:4.1f}"
            for what in ("build", "batch", "single")
        )
        print(f"{row['keys']:>14} " + " ".join(cells))


def _cell(row: dict[str, Any]) -> str:
    half = (row["high"] - row["low"]) / 2 / row["expected"]
    return f"{row['observed']:>10.4%} {row['of_expected']:5.3f} (+-{half:.3f})"


def main(argv: list[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--quick", action="store_true", help="small filters and few probes, for a few seconds")
    arguments = parser.parse_args(argv)
    print_figures(measure(arguments.quick), arguments.json, show)


if __name__ == "__main__":
    main()
