"""`lsmkv-bench`: the command line. Flags are db_bench's; `_` and `-` mean the same in their names."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from .settings import Settings, parse_bool, parse_count, parse_size

_DEFAULT = Settings()


def _typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Turns a parser's ValueError into argparse's own complaint, with its words."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _number_or_auto(text: str) -> float | str:
    return "auto" if text == "auto" else float(text)


def _bool_or_auto(text: str) -> bool | str:
    return "auto" if text == "auto" else parse_bool(text)


# flag, kind, help. "switch" may be given bare or as --flag=0/1.
FLAGS: tuple[tuple[str, str, str], ...] = (
    ("num", "count", "records in the database"),
    ("reads", "count", "operations of a read workload (as num)"),
    ("writes", "count", "operations of a write workload (as num)"),
    ("duration", "float", "seconds per workload instead of a count"),
    ("threads", "count", "threads; for *whilewriting the readers"),
    ("key-size", "size", "bytes per key"),
    ("value-size", "size", "bytes per value"),
    ("value-size-distribution", "text", "fixed, uniform, normal or pareto"),
    ("value-size-min", "size", "for uniform and normal"),
    ("value-size-max", "size", "for uniform and normal"),
    ("compression-ratio", "float", "to what share of its size a value compresses"),
    ("compression", "text", "lz4 or none"),
    ("batch-size", "count", "records per call of fillbatch (1000) and multireadrandom (100)"),
    ("seek-nexts", "count", "steps after each seek"),
    ("cache-size", "size", "block cache"),
    ("bits-per-key", "bits", "filter size; --bloom-bits is the same"),
    ("optimize-filters-for-hits", "auto", "no filters at the bottom level"),
    ("block-size", "size", "uncompressed bytes per block"),
    ("write-buffer-size", "size", "memtable size"),
    ("max-write-buffers", "count", "memtables held at most"),
    ("memory-budget", "size", "in all: two write buffers, and the rest as block cache"),
    ("sync", "switch", "sync every write"),
    ("disable-wal", "switch", "no log"),
    ("seed", "count", "of every stream of keys and values"),
    ("distribution", "text", "of keys: uniform, zipf:0.99 or latest"),
    ("rate", "count", "writes per second of the *whilewriting writer, 0 as fast as it can"),
    ("readwritepercent", "count", "share of reads in readrandomwriterandom"),
    ("histogram", "switch", "print the latency histogram of each workload"),
    ("latency", "switch", "record latencies (what that costs is deducted)"),
    ("settle", "switch", "wait after write workloads until background work rests"),
    ("check-every", "count", "verify each n-th answer, 0 none"),
    ("report-interval-seconds", "float", "between progress reports"),
)

_PARSE: dict[str, Callable[[str], Any]] = {
    "count": parse_count,
    "size": parse_size,
    "float": float,
    "text": str,
    "bits": _number_or_auto,
    "auto": _bool_or_auto,
    "switch": parse_bool,
}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lsmkv-bench",
        description="Drives lsmkv and its peers through db_bench's workloads, each in a fresh process.",
        epilog="A benchmark is name, name[X3-W1] (warm up once, run thrice) or name:flag=value; see --list.",
        allow_abbrev=False,
    )
    parser.add_argument("--benchmarks", default=None, help="comma-separated list")
    parser.add_argument("--suite", help="a ready-made list: table, full or scale")
    parser.add_argument(
        "--engines", default=",".join(_DEFAULT.engines), help="the first is compared with the others"
    )
    parser.add_argument("--runs", type=_typed(parse_count), default=1, help="interleaved runs of everything")
    parser.add_argument("--db", help="folder for the databases; kept (a temporary one is removed)")
    parser.add_argument("--use-existing-db", nargs="?", const=True, default=False, type=_typed(parse_bool))
    for name, kind, text in FLAGS:
        default = getattr(_DEFAULT, name.replace("-", "_"))
        names = ["--" + name] + (["--bloom-bits"] if name == "bits-per-key" else [])
        bare = {"nargs": "?", "const": True} if kind in ("switch", "auto") else {}
        shown = "" if default is None else f" ({default})"
        parser.add_argument(*names, type=_typed(_PARSE[kind]), default=default, help=text + shown, **bare)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="ENGINE.NAME=VALUE",
        help="an option for one engine only (lsmkv)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all results")
    parser.add_argument("--slim-json", metavar="FILE", help="write results without histograms")
    parser.add_argument("--csv", metavar="FILE", help="write one line per measurement")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as a page")
    parser.add_argument("--plot", metavar="FILE", help="write a picture (png, svg)")
    parser.add_argument("--load", metavar="FILE", help="report an earlier --json instead of running")
    parser.add_argument("--compare", metavar="FILE", help="compare with an earlier --json")
    parser.add_argument(
        "--fail-if-slower", metavar="SHARE", help="with --compare: exit 1 if ours lost more, as in 10%%"
    )
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    return parser


def normalized(argv: Sequence[str]) -> list[str]:
    """`--key_size=16` as `--key-size=16`; values keep their underscores."""
    out = []
    for word in argv:
        name, eq, value = word.partition("=")
        out.append(name.replace("_", "-") + eq + value if name.startswith("--") else word)
    return out


def to_settings(args: argparse.Namespace) -> Settings:
    benchmarks = args.benchmarks or _DEFAULT.benchmarks
    if args.suite:
        from .workloads.suites import SUITES

        if args.suite not in SUITES:
            raise ValueError(f"no suite {args.suite!r}; there are {', '.join(SUITES)}")
        benchmarks = SUITES[args.suite] + ("," + args.benchmarks if args.benchmarks else "")
    plain = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name, _, _ in FLAGS}
    return Settings(
        benchmarks=benchmarks,
        engines=tuple(name.strip() for name in args.engines.split(",") if name.strip()),
        db=args.db,
        use_existing_db=args.use_existing_db,
        runs=args.runs,
        engine_options=engine_options(args.option),
        **plain,
    )


def engine_options(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`lsmkv.bits_per_key=12` -> {"lsmkv": {"bits_per_key": 12}}"""
    from ast import literal_eval

    options: dict[str, dict[str, Any]] = {}
    for text in texts:
        target, eq, value = text.partition("=")
        engine, dot, name = target.partition(".")
        if not eq or not dot:
            raise ValueError(f"--option {text!r} is not ENGINE.NAME=VALUE")
        try:
            options.setdefault(engine, {})[name] = literal_eval(value)
        except (ValueError, SyntaxError):
            options.setdefault(engine, {})[name] = value
    return options


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    args = parser.parse_args(normalized(words))
    if args.list:
        return _list()
    from .runner import RunFailed

    try:
        limit = _limit(args)
        _check_outputs(args)
        old = _load(args.compare) if args.compare else None
        gathered = _load(args.load) if args.load else _run(to_settings(args), words)
        _show(gathered)
        _save(gathered, args)
        return _compare(gathered, old, args.compare, limit) if old is not None else 0
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except (ValueError, OSError) as error:
        parser.error(str(error))
    except RunFailed as error:
        print(f"lsmkv-bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _limit(args: argparse.Namespace) -> float | None:
    from .report.compare import parse_percent

    if args.fail_if_slower and not args.compare:
        raise ValueError("--fail-if-slower needs --compare")
    return parse_percent(args.fail_if_slower) if args.fail_if_slower else None


def _check_outputs(args: argparse.Namespace) -> None:
    """Before the run, not after it."""
    from .report.results import check_place

    for path in (args.json, args.slim_json, args.csv, args.markdown, args.plot):
        if path:
            check_place(path)
    if args.plot and find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib (pip install lsmkv[bench])")
    if args.plot:
        from .report.plot import check_format

        check_format(args.plot)


def _list() -> int:
    from .workloads.registry import WORKLOADS

    for name, workload in WORKLOADS.items():
        print(f"{name:<24} {workload.what}")
    return 0


def _load(path: str) -> Any:
    from .report.results import load_json

    return load_json(path)


def _run(settings: Settings, words: list[str]) -> Any:
    from .engines import NAMES
    from .report.progress import listener
    from .runner import run_all

    unknown = [name for name in settings.engines if name not in NAMES]
    if unknown:
        raise ValueError(f"no engine {unknown[0]!r}; there are {', '.join(NAMES)}")
    lines = listener(settings.runs, settings.histogram)
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        gathered = run_all(settings, lines)
    finally:
        lines.close()
        signal.signal(signal.SIGTERM, before)
    gathered.command = shlex.join(["lsmkv-bench", *words])
    return gathered


def _leave(signum: int, _: object) -> None:
    """By an exception, so that workers are ended and databases removed."""
    sys.exit(128 + signum)


def _show(gathered: Any) -> None:
    from .report.tables import engine_order, mapping_rows, misses, peers_rows, plain, ratio_rows

    for name, why in gathered.left_out.items():
        print(f"left out: {why if why.startswith(name) else f'{name}: {why}'}")
    if not engine_order(gathered):
        return
    print("\n" + plain(*mapping_rows(gathered)))
    print("\n" + plain(*peers_rows(gathered)))
    if len(engine_order(gathered)) > 1:
        print("\n" + plain(*ratio_rows(gathered)))
        print("\n" + plain(*ratio_rows(gathered, "cpu")))
    for line in misses(gathered):
        print(f"below target: {line}")


def _save(gathered: Any, args: argparse.Namespace) -> None:
    from .report.results import save_csv, save_json, save_text

    if args.json:
        save_json(gathered, args.json)
    if args.slim_json:
        save_json(gathered, args.slim_json, slim=True)
    if args.csv:
        save_csv(gathered, args.csv)
    if args.markdown:
        from .report.tables import markdown_page

        save_text(markdown_page(gathered), args.markdown)
    if args.plot:
        from .report.plot import save_plot

        save_plot(gathered, args.plot)


def _compare(gathered: Any, old: Any, name: str, limit: float | None) -> int:
    from .report.compare import change_rows, changes, judged
    from .report.tables import plain

    found = changes(old, gathered)
    if not found:
        raise ValueError(f"{name} has no workload in common with this result")
    print("\n" + plain(*change_rows(found)))
    slow = judged(found, gathered, limit) if limit is not None else []
    for change in slow:
        print(f"slower: {change.workload} takes {change.slower:+.1%} time, more than {limit:.1%} allowed")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
