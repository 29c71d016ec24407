"""Every command on healthy, empty, locked, truncated and damaged files, as text and JSON."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from catalogue import CHANGING, COPYING, ON_DATABASE, ON_TABLE
from toolrunner import tool

import lsmkv

BOTH = pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])


def run(line, form):
    """Run a command. Whatever the input, it must not raise, and must print one document with --json."""
    outcome = tool(*line.split(), *form)
    assert "Traceback" not in outcome.err
    if form:
        document = outcome.json
        assert document["schema"] == "lsmkv-tool/1" and document["exit"] == outcome.code
    if outcome.code >= 2:
        assert outcome.err.startswith("lsmkv-tool: ")
    return outcome


@BOTH
@pytest.mark.parametrize("line", ON_DATABASE)
def test_healthy(shared, line, form):
    outcome = run(line, form)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out


# These find no key or no table in an empty database.
EMPTY_FINDS_NOTHING = ("db get", "db multi-get", "db find", "filter heat", "filter advise")


@BOTH
@pytest.mark.parametrize("line", [line for line in ON_DATABASE if not line.startswith("top")])
def test_empty(tmp_path, monkeypatch, line, form):
    monkeypatch.chdir(tmp_path)
    lsmkv.open("mydb").close()
    assert run(line, form).code == (1 if line.startswith(EMPTY_FINDS_NOTHING) else 0)


@BOTH
@pytest.mark.parametrize("line", [*ON_DATABASE, *COPYING, *CHANGING])
def test_open_for_writing(lab, line, form):
    with lsmkv.open("mydb", "w"):
        outcome = run(line, form)
    if line in CHANGING or line.startswith("repair"):
        assert outcome.code == 3 and "open" in outcome.err
    else:
        assert outcome.code == 0


@BOTH
@pytest.mark.parametrize("line", [*ON_DATABASE, *COPYING, *CHANGING, *ON_TABLE])
def test_missing(tmp_path, monkeypatch, line, form):
    monkeypatch.chdir(tmp_path)
    assert run(line, form).code == 3


@BOTH
@pytest.mark.parametrize(
    "line", ["db info mydb", "db get mydb k", "sst ls mydb", "verify mydb", "db destroy mydb --yes"]
)
def test_a_directory_without_a_database(tmp_path, monkeypatch, line, form):
    monkeypatch.chdir(tmp_path)
    Path("mydb").mkdir()
    Path("mydb/precious.txt").write_text("mine")
    expected = 0 if line.startswith("sst ls") else 3
    assert run(line, form).code == expected
    assert Path("mydb/precious.txt").read_text() == "mine"


def tables(directory):
    return sorted(Path(directory).glob("*.sst"))


# These read only the manifest, the logs or the statistics, and do not see damage in a table.
BLIND_TO_TABLES = (
    "db info", "db levels", "db space", "filter advise", "wal ls", "wal dump", "wal verify", "vlog ls", "vlog info",
    "manifest dump",
    "manifest summarize", "manifest timeline", "top",
)  # fmt: skip


@BOTH
@pytest.mark.parametrize("line", ON_DATABASE)
def test_truncated_tables(lab, line, form):
    for path in tables("mydb"):
        os.truncate(path, path.stat().st_size // 2)
    outcome = run(line, form)
    # Exported statistics need no table.
    blind = line.startswith(BLIND_TO_TABLES) or line == "db stats mydb"
    assert outcome.code == (0 if blind else 1)
    if not blind:
        assert ".sst" in outcome.out + outcome.err


@BOTH
@pytest.mark.parametrize("line", ON_DATABASE)
def test_truncated_manifest(lab, line, form):
    (path,) = Path("mydb").glob("MANIFEST-*")
    os.truncate(path, path.stat().st_size // 2)
    outcome = run(line, form)
    if line.startswith(("sst", "wal", "vlog info", "vlog verify", "top", "db stats")):
        assert outcome.code == 0
    else:
        assert outcome.code == 1 and "MANIFEST" in outcome.out + outcome.err


@BOTH
@pytest.mark.parametrize("line", ON_DATABASE)
def test_flipped_bit_in_current(lab, line, form):
    path = Path("mydb/CURRENT")
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    outcome = run(line, form)
    if line.startswith(("sst", "wal", "vlog info", "vlog verify", "top", "db stats")):
        assert outcome.code == 0
    else:
        assert outcome.code == 1 and "CURRENT" in outcome.out + outcome.err


@contextlib.contextmanager
def flipped(path, offset):
    data = path.read_bytes()
    path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1 :])
    yield
    path.write_bytes(data)


@BOTH
@pytest.mark.parametrize("line", ON_TABLE)
def test_a_table_truncated_anywhere(lab, line, form):
    whole = Path("table.sst").read_bytes()
    for keep in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        Path("table.sst").write_bytes(whole[:keep])
        outcome = run(line, form)
        assert outcome.code == 1 and "table.sst" in outcome.out + outcome.err


@BOTH
@pytest.mark.parametrize("line", ON_TABLE)
def test_a_table_with_a_flipped_bit_in_its_first_block(lab, line, form):
    """Only commands that need the block fail."""
    with flipped(Path("table.sst"), 20):
        outcome = run(line, form)
    whole_elsewhere = (
        "sst ls",
        "sst info",
        "sst layout",
        "filter ls",
        "filter info",
        "filter fpr",
        "filter heat",
    )
    assert outcome.code == (0 if line.startswith(whole_elsewhere) else 1)


@BOTH
def test_scan_skips_a_damaged_block(lab, form):
    everything = run("sst scan table.sst --value-format none --jsonl", ()).lines
    first = len(run("sst blocks table.sst --block 0 --jsonl", ()).lines)
    with flipped(Path("table.sst"), 20):
        left = run("sst scan table.sst --value-format none --jsonl", ())
        shown = run("sst scan table.sst", form)
    assert 0 < first < len(everything)
    assert left.lines == everything[first:] and left.code == 1
    assert shown.code == 1 and "offset 0" in shown.err
    if form:
        assert shown.json["result"]["problems"][0]["offset"] == 0


@BOTH
def test_a_damaged_filter_answers_maybe_and_is_named(lab, form):
    layout = tool("sst", "layout", "table.sst", "--json").json["result"]
    at = next(part["offset"] for part in layout["sections"] if part["part"] == "filter")
    with flipped(Path("table.sst"), at + 3):
        for line in (
            "filter ls table.sst",
            "filter info table.sst",
            "filter fpr table.sst",
            "filter heat table.sst",
        ):
            assert run(line, form).code == 1
        probe = run("filter probe table.sst nobody:here --json", ())
        verify = run("sst verify table.sst", form)
        assert tool("sst", "scan", "table.sst").code == 0
    assert probe.code == 0 and not probe.json["result"]["rows"]
    assert verify.code == 1 and "filter" in verify.out


@BOTH
def test_standalone_logs(lab, form):
    log = min(Path("mydb").glob("*.wal"))  # the next log may exist already
    shutil.copy(log, "lost.wal")
    for command in ("ls", "dump", "verify"):
        assert run(f"wal {command} lost.wal", form).code == 0
    whole = Path("lost.wal").read_bytes()
    second = tool("wal", "dump", "lost.wal", "--jsonl").lines[1]["offset"]
    with flipped(Path("lost.wal"), second + 40):
        dump = run("wal dump lost.wal", form)
        assert dump.code == 1 and "user:00042" in dump.out
        assert run("wal verify lost.wal", form).code == 1
    Path("lost.wal").write_bytes(whole[:100])
    for command in ("dump", "verify"):
        assert run(f"wal {command} lost.wal", form).code == 1


@BOTH
def test_a_damaged_manifest_is_read_up_to_the_damage(lab, form):
    (path,) = Path("mydb").glob("MANIFEST-*")
    rows = tool("manifest", "dump", path, "--jsonl").lines
    with flipped(path, rows[5]["offset"] + 30):
        before = run(f"manifest dump {path} --jsonl", ())
        shown = run(f"manifest dump {path}", form)
        check = run("manifest check mydb", form)
    assert before.lines == rows[:5] and before.code == 1
    assert str(rows[5]["offset"]) in shown.err
    assert shown.code == check.code == 1
    if form:
        assert shown.json["result"]["problem"]["offset"] == rows[5]["offset"]


@BOTH
def test_symbolic_links_are_not_followed(lab, form):
    os.symlink("table.sst", "link.sst")
    os.symlink("mydb", "link")
    for line in ("sst info link.sst", "sst verify link.sst", "filter info link.sst", "db destroy link --yes"):
        outcome = run(line, form)
        assert outcome.code == 3 and "symbolic link" in outcome.err
    table = tables("mydb")[0]
    shutil.move(table, "away.sst")
    os.symlink(Path("away.sst").absolute(), table)
    assert run("verify mydb", form).code == 1
    assert run("filter ls mydb", form).code == 3


@BOTH
def test_destroy_keeps_other_files(lab, form):
    Path("mydb/notes.txt").write_text("mine")
    os.symlink("/etc/hostname", "mydb/000999.sst")
    assert run("db destroy mydb --yes", form).code == 0
    assert sorted(os.listdir("mydb")) == ["000999.sst", "notes.txt"]
    assert Path("mydb/notes.txt").read_text() == "mine"
