"""The files that a run writes: JSON, CSV, Markdown, plot, figure."""

from __future__ import annotations

import csv
import json
import struct
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchrunner import run_cli

from lsmkv_bench.native.latency import Histogram
from lsmkv_bench.report.figure import ratio_figure
from lsmkv_bench.report.plot import charts
from lsmkv_bench.report.results import Results
from lsmkv_bench.report.summary import LATENCIES
from lsmkv_bench.settings import Settings

SVG = "{http://www.w3.org/2000/svg}"


def test_json_has_versions_settings_and_machine(bench: Any) -> None:
    data = bench("--num=500", "--engines=dict", "--benchmarks=fillrandom,readrandom[X3-W1]", "--runs=2", "--seed=5")
    assert data["schema"] == 1
    assert data["versions"] == {"dict": sys.version.split()[0]}
    assert data["settings"]["seed"] == 5
    assert {"cpu", "cores", "memory", "system", "python", "date", "filesystem"} <= set(data["machine"])
    assert data["command"].startswith("lsmkv-bench --num=500")
    assert "durability" in data["mappings"]["dict"]
    reads = [r for r in data["results"] if r["workload"] == "readrandom"]
    assert [(r["run"], r["repeat"]) for r in reads] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    latency = reads[0]["latency"]
    percentiles = [latency[name] for name in ("p50", "p75", "p99", "p99.9", "p99.99", "max")]
    assert percentiles == sorted(percentiles)
    assert latency["histogram"]["count"] == reads[0]["ops"] == 500


def test_outputs_and_compare(tmp_path: Path) -> None:
    files = {kind: tmp_path / "new" / f"out.{kind}" for kind in ("json", "csv", "md")}
    words = ["--num=500", "--engines=dict", "--benchmarks=fillrandom,readrandom", "--histogram"]
    outputs = [f"--json={files['json']}", f"--csv={files['csv']}", f"--markdown={files['md']}"]
    done = run_cli(*words, *outputs)
    assert "micros/op" in done.stdout and "Percentiles: P50:" in done.stdout
    with files["csv"].open() as file:
        lines = list(csv.DictReader(file))
    assert [line["workload"] for line in lines] == ["fillrandom", "readrandom"]
    assert "## Ratios" in files["md"].read_text()
    same = run_cli("--load", str(files["json"]), "--compare", str(files["json"]), "--fail-if-slower", "10%")
    assert "+0.0%" in same.stdout

    data = json.loads(files["json"].read_text())
    for result in data["results"]:
        result["micros_per_op"] *= 0.5
    faster = tmp_path / "faster.json"
    faster.write_text(json.dumps(data))
    slow = run_cli(f"--load={files['json']}", f"--compare={faster}", "--fail-if-slower=10%", check=False)
    assert slow.returncode == 1
    assert "slower: fillrandom takes +100.0% time" in slow.stdout


def test_slim_json_can_be_loaded(tmp_path: Path) -> None:
    slim = tmp_path / "slim.json"
    run_cli("--num=500", "--engines=dict", "--benchmarks=fillrandom", "--slim-json", str(slim))
    assert "histogram" not in json.loads(slim.read_text())["results"][0]["latency"]
    assert "fillrandom" in run_cli("--load", str(slim)).stdout


def result_of(workload: str, engine: str, **more: object) -> dict[str, object]:
    return {"workload": workload, "engine": engine, "run": 0, "repeat": 0, "micros_per_op": 1.5, **more}


def results_of(*results: dict[str, object]) -> Results:
    names = tuple(dict.fromkeys(str(result["engine"]) for result in results))
    return Results(Settings(engines=names), list(results), dict.fromkeys(names, "1"))


def test_a_plot_has_only_charts_with_something_to_show() -> None:
    long_run = {"series": [(0.1, 1000), (0.2, 3000), (0.3, 4000)]}
    recorded = {"latency": {"histogram": Histogram().to_dict()} | dict.fromkeys(LATENCIES, 1.0)}

    def shown(*results: dict[str, object]) -> list[str]:
        return [chart.__name__ for chart in charts(results_of(*results))]

    assert shown(result_of("readseq", "dict")) == ["_bars"]
    assert shown(result_of("readseq", "dict", series=[(0.1, 1000)])) == ["_bars"]
    assert shown(result_of("readseq", "dict", **long_run)) == ["_bars", "_throughput"]
    assert shown(result_of("readrandom", "dict", **recorded)) == ["_bars", "_latency"]


@pytest.mark.parametrize("engines", ["dict", "lsmkv,dict"])
def test_plot(tmp_path: Path, engines: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    run_cli("--num=500", f"--engines={engines}", "--benchmarks=fillrandom,readrandom", "--plot", str(path))
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    assert width == 1080 and 500 < height < 1000, "two charts: bars and latencies"


def figure_of(micros: dict[str, dict[str, float]]) -> ElementTree.Element:
    """The figure of workload -> engine -> microseconds."""
    results = [
        {"workload": workload, "engine": engine, "run": 0, "micros_per_op": us}
        for workload, row in micros.items()
        for engine, us in row.items()
    ]
    engines = tuple(dict.fromkeys(engine for row in micros.values() for engine in row))
    settings, machine = Settings(engines=engines), {"date": "2030-01-02 03:04:05 UTC"}
    return ElementTree.fromstring(
        ratio_figure(Results(settings, results, dict.fromkeys(engines, "1"), machine=machine))
    )


def bars(figure: ElementTree.Element) -> list[tuple[float, float]]:
    """(left, right) of the bars, without the legend."""
    rects = [{name: float(rect.get(name, "0")) for name in ("x", "y", "width")} for rect in figure.iter(f"{SVG}rect")]
    return [(rect["x"], rect["x"] + rect["width"]) for rect in rects if rect["y"] > 80]


def test_figure_has_a_bar_for_each_ratio() -> None:
    figure = figure_of(
        {
            "fast": {"lsmkv": 1.0, "rocksdb": 2.0, "lmdb": 4.0},
            "slow": {"lsmkv": 1.0, "rocksdb": 0.7, "lmdb": 0.1},
            "<partial>": {"lsmkv": 1500.0, "rocksdb": 3000.0},
        }
    )
    texts = [text.text for text in figure.iter(f"{SVG}text")]
    assert {"fast", "slow", "<partial>", "RocksDB", "LMDB", "1.5 ms"} <= set(texts)
    assert [text for text in texts if text in ("2.0x", "4.0x", "0.70x", "0.10x", "-")] == [
        *("2.0x", "4.0x", "0.70x", "0.10x", "2.0x", "-"),
    ]
    two, four, slower, slowest, again = bars(figure)
    one = two[0]
    assert four[0] == one and four[1] - one == pytest.approx(2 * (two[1] - one), abs=0.3)  # a log scale
    assert slower[1] == pytest.approx(one, abs=0.2) and slowest[0] < slower[0]
    assert again == two
    assert len(list(figure.iter(f"{SVG}path"))) == 1  # the arrow of 0.10x


def test_figure_needs_a_peer() -> None:
    with pytest.raises(ValueError, match="an engine to compare lsmkv with"):
        figure_of({"fast": {"lsmkv": 1.0}})


def test_figure_is_written_by_the_command(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ratios.svg"
    run_cli("--num=500", "--engines=lsmkv,dict", "--benchmarks=fillseq,readrandom", f"--figure={path}")
    labels = [text.text for text in ElementTree.parse(path).iter(f"{SVG}text")]
    assert "fillseq" in labels and "readrandom" in labels
