"""FIFOs, sockets, devices and folders in place of a file: every call names the file, and none waits for it."""

import os
import socket
import threading
from pathlib import Path

import pytest
from databases import write_sst

import lsmkv
from lsmkv import filenames
from lsmkv.filenames import FileKind

HANG_SECONDS = 30
OURS = ["CURRENT", "MANIFEST", "SYNCED", "LOCK", "OPTIONS", "log", "table"]


def make_socket(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_folder(path):
    path.mkdir()
    (path / "inside").write_bytes(b"kept")


KINDS = {"fifo": os.mkfifo, "socket": make_socket, "folder": make_folder}


def within_limit(call):
    """Runs `call` in a thread. Returns its result or its exception; fails where it hangs."""
    outcome = []

    def run():
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(HANG_SECONDS)
    assert outcome, "the call hangs"
    return outcome[0]


def file_of(path, which):
    """The path of the database's file that `which` means."""
    listing = filenames.list_directory(str(path))
    wanted = {"MANIFEST": FileKind.MANIFEST, "log": FileKind.LOG, "table": FileKind.TABLE}.get(which)
    return path / next((name for name, kind, _ in listing if kind is wanted), which)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(params=OURS)
def replaced(request, path, kind):
    """A file of the database, replaced by something else."""
    file = file_of(path, request.param)
    file.unlink()
    KINDS[kind](file)
    return file


def test_open_for_writing_names_the_file(path, replaced):
    error = within_limit(lambda: lsmkv.open(path))
    assert isinstance(error, lsmkv.CorruptionError), error
    assert error.file == str(replaced) and "regular" in str(error)


def test_open_for_reading_names_the_file(path, replaced):
    result = within_limit(lambda: lsmkv.open(path, "r"))
    if replaced.name in ("LOCK", "OPTIONS"):  # a reader uses neither
        result.close()
        return
    assert isinstance(result, lsmkv.CorruptionError), result
    assert result.file == str(replaced) and "regular" in str(result)


def test_verify_reports_the_file(path, replaced):
    report = within_limit(lambda: lsmkv.verify(path))
    found = [finding for finding in report.findings if finding.file == replaced.name]
    assert found and "regular" in found[0].what


def test_repair_moves_it_aside_and_the_database_opens(path, replaced):
    report = within_limit(lambda: lsmkv.repair(path))
    if replaced.name == "LOCK":  # without a lock nothing may be changed
        assert isinstance(report, lsmkv.CorruptionError) and report.file == str(replaced)
        return
    assert replaced.name in report.set_aside
    assert (path / "lost" / replaced.name).exists()
    with within_limit(lambda: lsmkv.open(path)) as db:
        db[b"key"] = b"value"
    assert within_limit(lambda: lsmkv.verify(path)).ok


def test_repair_without_applying_changes_nothing(path, replaced):
    before = sorted(os.listdir(path))
    result = within_limit(lambda: lsmkv.repair(path, apply=False))
    assert isinstance(result, lsmkv.CorruptionError) if replaced.name == "LOCK" else result.needed
    assert sorted(os.listdir(path)) == before


def test_destroy_leaves_it(path, replaced):
    result = within_limit(lambda: lsmkv.destroy(path))
    assert result is None or (replaced.name == "LOCK" and isinstance(result, lsmkv.CorruptionError))
    assert replaced.exists()


@pytest.mark.parametrize("name", ["CURRENT", "OPTIONS", "LOCK", "SYNCED", "CURRENT.tmp", "MANIFEST-000001"])
@pytest.mark.parametrize("flag", ["c", "n"])
def test_a_new_database_does_not_replace_it(tmp_path, kind, name, flag):
    folder = tmp_path / "new"
    folder.mkdir()
    KINDS[kind](folder / name)
    error = within_limit(lambda: lsmkv.open(folder, flag))
    assert isinstance(error, lsmkv.Error), error
    assert name in str(error) and "regular" in str(error)
    assert not (folder / name).is_file()


def test_a_second_repair_keeps_what_the_first_moved(path, kind):
    for _ in range(2):
        current = path / "CURRENT"
        current.unlink()
        KINDS[kind](current)
        report = within_limit(lambda: lsmkv.repair(path))
        assert "CURRENT" in report.set_aside
        lsmkv.open(path).close()
    assert len([name for name in os.listdir(path / "lost") if name.startswith("CURRENT")]) == 2


# Paths that a user gave ---------------------------------------------------------------------------------------


@pytest.fixture(params=[*KINDS, "device"])
def given_path(request, tmp_path):
    if request.param == "device":
        return Path("/dev/zero")
    file = tmp_path / "given.sst"
    KINDS[request.param](file)
    return file


@pytest.mark.parametrize("move", [False, True])
def test_ingest_refuses_it(tmp_path, given_path, move):
    sound = write_sst(tmp_path / "sound.sst", [(b"a", b"1")])
    with lsmkv.open(tmp_path / "new") as db:
        error = within_limit(lambda: db.ingest([sound, given_path], move=move))
        assert isinstance(error, lsmkv.IOError), error
        assert error.filename == str(given_path) and "regular" in str(error)
        assert not dict(db.items())


def test_a_reader_of_a_table_refuses_it(given_path):
    error = within_limit(lambda: lsmkv.SSTReader(given_path))
    assert isinstance(error, lsmkv.IOError), error
    assert error.filename == str(given_path) and "regular" in str(error)


@pytest.mark.parametrize("call", [lsmkv.open, lsmkv.verify, lsmkv.repair, lsmkv.destroy])
@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_a_path_that_is_no_folder(tmp_path, kind, call):
    given_path = tmp_path / "given"
    KINDS[kind](given_path)
    result = within_limit(lambda: call(given_path))
    if isinstance(result, Exception):
        assert isinstance(result, lsmkv.IOError), result
    else:
        assert "there is no database" in str(result)
    assert given_path.exists()
