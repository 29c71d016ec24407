"""The command line of `lsmkv-bench`, with db_bench's flags. `-` and `_` are the same in a flag."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from .engines import BEFORE
from .flags import FLAGS, PARSERS
from .settings import Settings
from .units import parse_bool, parse_count

_DEFAULT = Settings()


def _typed(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Show the message of a parser's ValueError as argparse's error."""

    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lsmkv-bench",
        description="Runs db_bench's workloads on lsmkv and its peers, each engine in a process of its own.",
        epilog="A benchmark is name, name[X3-W1] (one warm-up, three repeats) or name:flag=value; see --list.",
        allow_abbrev=False,
    )
    parser.add_argument("--benchmarks", default=None, help="comma-separated list")
    parser.add_argument("--suite", help="a list with a name: table, full or scale")
    parser.add_argument(
        "--engines",
        default=",".join(_DEFAULT.engines),
        help="comma-separated list; the first is compared with the others",
    )
    parser.add_argument("--runs", type=_typed(parse_count), default=1, help="interleaved runs of the whole list")
    parser.add_argument("--db", help="directory of the databases, which are kept (default: a temporary directory)")
    parser.add_argument(
        "--use-existing-db",
        nargs="?",
        const=True,
        default=False,
        type=_typed(parse_bool),
        help="use the databases of an earlier run in --db",
    )
    parser.add_argument(
        "--before", metavar="FOLDER", help="a checkout of lsmkv, built in place, to run as the engine `before`"
    )
    for name, value_type, text in FLAGS:
        default = getattr(_DEFAULT, name.replace("-", "_"))
        names = ["--" + name] + (["--bloom-bits"] if name == "bits-per-key" else [])
        bare: dict[str, Any] = {"nargs": "?", "const": True} if value_type in ("switch", "auto") else {}
        shown = "" if default is None else f" ({default})"
        parser.add_argument(*names, type=_typed(PARSERS[value_type]), default=default, help=text + shown, **bare)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="ENGINE.NAME=VALUE",
        help="an option of a single engine (lsmkv)",
    )
    parser.add_argument("--json", metavar="FILE", help="write all results")
    parser.add_argument("--slim-json", metavar="FILE", help="write results without histograms")
    parser.add_argument("--csv", metavar="FILE", help="write a line per measurement")
    parser.add_argument("--markdown", metavar="FILE", help="write a page of tables")
    parser.add_argument("--plot", metavar="FILE", help="plot throughput, ratios and latencies (png, svg)")
    parser.add_argument("--figure", metavar="FILE", help="write the ratios as a bar chart (svg)")
    parser.add_argument("--load", metavar="FILE", help="report the results of an earlier --json; run nothing")
    parser.add_argument("--compare", metavar="FILE", help="compare with an earlier --json")
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="with --compare: exit 1 if the first engine got slower by more, such as 10%%",
    )
    parser.add_argument("--list", action="store_true", help="list the workloads")
    return parser


def normalized(argv: Sequence[str]) -> list[str]:
    """`--key_size=a_b` becomes `--key-size=a_b`."""
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
            raise ValueError(f"unknown suite {args.suite!r}; known: {', '.join(SUITES)}")
        benchmarks = SUITES[args.suite] + ("," + args.benchmarks if args.benchmarks else "")
    plain = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name, _, _ in FLAGS}
    engines = tuple(name.strip() for name in args.engines.split(",") if name.strip())
    if args.before and BEFORE not in engines:
        engines += (BEFORE,)
    return Settings(
        benchmarks=benchmarks,
        engines=engines,
        db=args.db,
        use_existing_db=args.use_existing_db,
        before=args.before,
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
        results = _load(args.load) if args.load else _run(to_settings(args), words)
        _show(results)
        _save(results, args)
        return _compare(results, old, args.compare, limit) if old is not None else 0
    except BrokenPipeError:  # as in `lsmkv-bench | head`
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
    """Fail before the run, not after it."""
    from .report.results import check_writable

    for path in (args.json, args.slim_json, args.csv, args.markdown, args.plot, args.figure):
        if path:
            check_writable(path)
    if args.figure and not args.figure.endswith(".svg"):
        raise ValueError(f"--figure writes SVG, not {args.figure!r}")
    if args.plot and find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib (pip install lsmkv[bench])")
    if args.plot:
        from .report.plot import check_format

        check_format(args.plot)


def _list() -> int:
    from .workloads.registry import WORKLOADS

    for name, workload in WORKLOADS.items():
        print(f"{name:<24} {workload.help}")
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
        raise ValueError(f"unknown engine {unknown[0]!r}; known: {', '.join(NAMES)}")
    listen = listener(settings.runs, settings.histogram)
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        results = run_all(settings, listen)
    finally:
        listen.close()
        signal.signal(signal.SIGTERM, before)
    results.command = shlex.join(["lsmkv-bench", *words])
    return results


def _exit(signum: int, _: object) -> None:
    """Exit by an exception, which kills the workers and removes the databases."""
    sys.exit(128 + signum)


def _show(results: Any) -> None:
    from .report.tables import figure_table, missed_targets, ratio_table, settings_table
    from .report.text import align

    for reason in results.left_out.values():
        print(f"left out: {reason}")
    if not results.engines:
        return
    tables = [settings_table(results), figure_table(results)]
    if len(results.engines) > 1:
        tables += [ratio_table(results), ratio_table(results, "cpu")]
    if BEFORE in results.engines[1:]:
        tables += [ratio_table(results, "user")]
    for table in tables:
        print("\n" + align(*table))
    for line in missed_targets(results):
        print(f"below target: {line}")


def _save(results: Any, args: argparse.Namespace) -> None:
    from .report.results import save_csv, save_json, save_text

    if args.json:
        save_json(results, args.json)
    if args.slim_json:
        save_json(results, args.slim_json, slim=True)
    if args.csv:
        save_csv(results, args.csv)
    if args.markdown:
        from .report.page import markdown_page

        save_text(markdown_page(results), args.markdown)
    if args.plot:
        from .report.plot import save_plot

        save_plot(results, args.plot)
    if args.figure:
        from .report.figure import ratio_figure

        save_text(ratio_figure(results), args.figure)


def _compare(results: Any, old: Any, name: str, limit: float | None) -> int:
    from .report.compare import change_table, changes, regressions
    from .report.text import align

    found = changes(old, results)
    if not found:
        raise ValueError(f"{name} and this result have no workload in common")
    print("\n" + align(*change_table(found)))
    slow = regressions(found, results, limit) if limit is not None else []
    for change in slow:
        print(f"slower: {change.workload} takes {change.slower:+.1%} time, the limit is {limit:.1%}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
