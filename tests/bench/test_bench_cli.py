"""The flags of the command, and its checks before a run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from benchrunner import run_cli

from lsmkv_bench import cli, runner
from lsmkv_bench.cli import build_parser, engine_options, main, normalized, to_settings
from lsmkv_bench.flags import FLAGS
from lsmkv_bench.settings import Settings
from lsmkv_bench.workloads.registry import WORKLOADS

FLAG_NAMES = """benchmarks engines db use_existing_db num reads writes duration threads key_size value_size
value_size_distribution compression_ratio batch_size cache_size bits_per_key bloom_bits
optimize_filters_for_hits block_size write_buffer_size sync disable_wal seed histogram
report_interval_seconds distribution rate memory_budget seek_nexts json csv plot figure compare fail_if_slower"""


@pytest.mark.parametrize("name", FLAG_NAMES.split())
def test_every_flag_exists_with_either_spelling(name: str) -> None:
    known = build_parser()._option_string_actions
    assert normalized([f"--{name}"]) == normalized(["--" + name.replace("_", "-")])
    assert normalized([f"--{name}"])[0] in known


def test_flags_cover_the_settings() -> None:
    separate = {"benchmarks", "engines", "db", "use_existing_db", "before", "runs", "engine_options"}
    assert {name.replace("-", "_") for name, _, _ in FLAGS} | separate == {f.name for f in fields(Settings)}


def test_values_keep_their_underscores() -> None:
    words = ["--engine_x=a_b", "read_random", "--json=out_1.json"]
    assert normalized(words) == ["--engine-x=a_b", "read_random", "--json=out_1.json"]


def test_flags_become_settings() -> None:
    words = ["--num=1000", "--bloom_bits", "12", "--sync", "--histogram=0", "--engines", "dict, lmdb"]
    words += ["--option", "lsmkv.wal='write'", "--option", "lsmkv.l0_compaction_trigger=2"]
    settings = to_settings(build_parser().parse_args(normalized(words)))
    assert (settings.num, settings.bits_per_key, settings.sync, settings.histogram) == (1000, 12.0, True, False)
    assert settings.engines == ("dict", "lmdb")
    assert settings.engine_options == {"lsmkv": {"wal": "write", "l0_compaction_trigger": 2}}
    with pytest.raises(ValueError, match="ENGINE"):
        engine_options(["wal=1"])


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a command that exits with code 2."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert "lsmkv-bench: error:" in message
    return message


@pytest.mark.parametrize(
    "words",
    [
        ["--num=many"],
        ["--benchmarks=fly", "--engines=dict"],
        ["--engines=oracle"],
        ["--suite=none"],
        ["--fail-if-slower=10%"],
        ["--load=/does/not/exist.json"],
        ["--memory-budget=1k", "--engines=dict"],
        ["--engines="],
        ["--engines=dict", "--num=0"],
        ["--engines=dict", "--num=-5"],
        ["--engines=dict", "--runs=0"],
        ["--engines=dict", "--threads=0"],
        ["--engines=dict", "--value_size=-1"],
        ["--engines=dict", "--key_size=2", "--num=101"],
        ["--engines=dict", "--distribution=foo"],
        ["--engines=dict", "--distribution=zipf:x"],
        ["--engines=dict", "--value_size_distribution=foo"],
        ["--engines=dict", "--compression=foo"],
        ["--engines=dict", "--compression_ratio=3"],
        ["--engines=dict", "--benchmarks=fillseq:threads=0"],
        ["--engines=dict", "--num=inf"],
        ["--engines=dict", "--cache_size=inf"],
        ["--engines=dict", "--duration=nan"],
        ["--engines=dict", "--report_interval_seconds=inf"],
        ["--engines=dict,dict"],
        ["--engines=dict", "--bits_per_key=-1"],
        ["--engines=dict", "--bits_per_key=many"],
        ["--engines=dict", "--value_size_distribution=uniform", "--value_size_min=9", "--value_size_max=8"],
        ["--engines=dict", "--sync", "--disable_wal"],
        ["--engines=dict", "--benchmarks=fillsync", "--disable_wal"],
        ["--engines=dict", "--fail-if-slower=ten", "--compare=x"],
        ["--engines=dict", "--compare=/does/not/exist.json"],
        ["--engines=dict", "--json=/dev/null/out.json"],
        ["--engines=dict", "--csv=/dev"],
        ["--engines=dict", "--figure=ratios.png"],
    ],
)
def test_bad_flags_are_refused_before_the_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner, "_run_once", lambda *_: pytest.fail("it ran"))
    refused(words, capsys)


def test_plot_without_matplotlib_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    monkeypatch.setattr(cli, "_run", lambda *_: pytest.fail("it ran"))
    assert "matplotlib" in refused(["--engines=dict", "--plot=out.png"], capsys)


def test_unknown_format_of_a_plot_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(cli, "_run", lambda *_: pytest.fail("it ran"))
    message = refused(["--engines=dict", f"--plot={tmp_path / 'out.foo'}"], capsys)
    assert "cannot write 'foo'" in message


@pytest.mark.parametrize("text", ["[]", '{"schema": 1}', '{"schema": 9}', "no JSON", '{"schema": 1, "settings": {}}'])
def test_file_that_is_not_a_result_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.json"
    path.write_text(text)
    message = refused([f"--load={path}"], capsys)
    assert "result" in message or text == "no JSON"


def test_run_without_a_usable_engine_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("lmdb")
    page = tmp_path / "page.md"
    assert main(["--engines=lmdb", "--key_size=600", "--num=10", f"--markdown={page}"]) == 1
    assert "no engine to run: lmdb: keys are limited to 511 bytes" in capsys.readouterr().err
    assert not page.exists()


def test_list() -> None:
    assert {line.split()[0] for line in run_cli("--list").stdout.splitlines()} == set(WORKLOADS)
