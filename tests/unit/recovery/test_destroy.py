"""destroy, and files of other programs."""

import os

import pytest

import lsmkv


def test_destroy(path):
    with lsmkv.open(path), pytest.raises(lsmkv.LockError):
        lsmkv.destroy(path)
    lsmkv.destroy(path)
    assert not os.path.exists(path)
    lsmkv.destroy(path)


def test_destroy_of_a_file_is_refused(tmp_path):
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(lsmkv.IOError):
        lsmkv.destroy(tmp_path / "notes")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("call", [lsmkv.destroy, lsmkv.repair, lambda path: lsmkv.open(path, "n"), lsmkv.open])
def test_a_database_of_leveldb_or_rocksdb_is_refused(tmp_path, call):
    """They have files of the same names: `destroy`, `repair` and the flag "n" removed them."""
    files = {"CURRENT": b"MANIFEST-000004\n", "MANIFEST-000004": b"theirs", "000012.sst": b"theirs", "LOCK": b""}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(lsmkv.Error):
        call(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == files


OUR_NAMES = ["000005.sst", "000005.wal", "000005.wal.tmp", "MANIFEST-000001", "OPTIONS", "STATS", "SYNCED"]
OUR_NAMES += ["CURRENT.tmp"]


def contents_of(folder):
    return {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", OUR_NAMES)
@pytest.mark.parametrize("flag", ["c", "n"])
def test_a_directory_with_a_foreign_file_of_our_name_is_refused(tmp_path, flag, name):
    """Without CURRENT: the flag "n" removed it, "c" wrote over it."""
    (tmp_path / name).write_bytes(b"precious data of another program")
    before = contents_of(tmp_path)
    with pytest.raises(lsmkv.Error):
        lsmkv.open(tmp_path, flag)
    assert contents_of(tmp_path) in (before, {**before, "LOCK": b""})


@pytest.mark.parametrize("name", [*OUR_NAMES, "LOCK", "lost/000005.sst"])
def test_destroy_leaves_a_foreign_file_of_our_name_alone(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"precious data of another program")
    before = contents_of(tmp_path)
    lsmkv.destroy(tmp_path)
    assert contents_of(tmp_path) == before


@pytest.mark.parametrize("call", [lsmkv.destroy, lambda path: lsmkv.open(path, "n").close()])
def test_the_files_of_a_database_without_current_are_known_by_what_is_in_them(path, contents, call):
    (path / "CURRENT").unlink()
    (path / "STATS").write_bytes(b'{"pid": 1, "time": 2.0, "stats": {}}')
    (path / "CURRENT.tmp").write_bytes(b"MANIFEST-0")
    before = contents_of(path)
    call(path)
    assert path.exists() == (call is not lsmkv.destroy)
    assert not path.exists() or not before.items() & contents_of(path).items() - {("LOCK", b"")}


@pytest.mark.parametrize("call", [lsmkv.destroy, lambda path: lsmkv.open(path, "n").close()])
def test_a_removal_that_was_cut_short_is_finished(path, contents, call, monkeypatch):
    """Also where the database had damaged files, which nothing but its CURRENT shows to be ours."""
    for pattern in ("*.sst", "*.wal"):
        next(path.glob(pattern)).write_bytes(b"nonsense")
    (path / "lost").mkdir()
    (path / "lost" / "000001.sst").write_bytes(b"nonsense")
    real, left = os.unlink, [0]

    def stop(*arguments, **options):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        real(*arguments, **options)

    monkeypatch.setattr(os, "unlink", stop)
    for n in range(100):
        left[0] = n
        try:
            call(path)
            break
        except KeyboardInterrupt:
            pass
    monkeypatch.setattr(os, "unlink", real)
    lsmkv.destroy(path)
    assert not path.exists()
