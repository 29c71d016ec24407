import errno
import os

import pytest
from treetext import parse_file, show

import lsmkv
from lsmkv import files
from lsmkv.errors import CorruptionError, Error, IOError, SyncError
from lsmkv.filenames import manifest_path
from lsmkv.version import current, manifest, version_set
from lsmkv.version.edit import TreeEdit, VersionEdit
from lsmkv.version.manifest import HEAD_BYTES, LATEST_FORMAT, ManifestWriter, read_manifest

FIRST = VersionEdit(
    seed=77, next_file=10, last_seq=5, log_number=3, trees=(TreeEdit(added=((1, parse_file("1[a-z]")),)),)
)


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path)


def filled(directory, *edits, number=4):
    writer = ManifestWriter.create(directory, number, FIRST, LATEST_FORMAT)
    for edit in edits:
        writer.append(edit)
    writer.close()
    return manifest_path(directory, number)


def test_state_comes_back(directory):
    filled(directory, VersionEdit.of(last_seq=9, added=((0, parse_file("11[c-d]")),)), VersionEdit(log_number=8))
    state = read_manifest(directory, 4)
    assert (state.seed, state.next_file, state.last_seq, state.log_number) == (77, 10, 9, 8)
    assert show(state.trees[0].version) == "L0: 11 | L1: 1"
    assert (state.records, state.torn_bytes) == (3, 0)


def test_snapshot_edit_makes_the_same_state(directory):
    filled(directory, VersionEdit.of(last_seq=9, added=((0, parse_file("11[c-d]")),)))
    state = read_manifest(directory, 4)
    ManifestWriter.create(directory, 5, manifest.snapshot_edit(state, "open", 1), LATEST_FORMAT).close()
    again = read_manifest(directory, 5)
    assert (again.trees, again.last_seq, again.seed) == (state.trees, 9, 77)


def test_the_head_has_nothing_odd(directory):
    for edits in range(4):
        path = filled(directory, *[VersionEdit(last_seq=9)] * edits, number=20 + edits)
        with open(path, "rb") as file:
            assert manifest.head_damage(file.read(), 20 + edits) is None


def test_an_unfinished_append_is_a_torn_tail(directory):
    path = filled(directory, VersionEdit(last_seq=9))
    with open(path, "ab") as file:
        file.write(manifest._record(2, VersionEdit(last_seq=50).encode(), 4)[:-1])
    state = read_manifest(directory, 4)
    assert state.last_seq == 9
    assert state.torn_bytes > 0


def test_every_flipped_byte_is_refused_or_changes_nothing(directory):
    path = filled(directory, VersionEdit(last_seq=9), VersionEdit(last_seq=12))
    with open(path, "rb") as file:
        good = file.read()
    expected = read_manifest(directory, 4)
    refused = 0
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 0x10
        with open(path, "wb") as file:
            file.write(damaged)
        try:
            state = read_manifest(directory, 4)
        except CorruptionError:
            refused += 1
        else:
            assert at < HEAD_BYTES, "damage in a synced record went unnoticed"
            assert state == expected
            assert manifest.head_damage(bytes(damaged), 4) is not None
    assert refused >= len(good) - HEAD_BYTES


def test_every_truncation_of_synced_bytes_is_refused(directory):
    path = filled(directory, VersionEdit(last_seq=9))
    size = os.path.getsize(path)
    for length in range(size):
        os.truncate(path, length)
        with pytest.raises(CorruptionError):
            read_manifest(directory, 4)
        filled_again = filled(directory, VersionEdit(last_seq=9), number=100 + length)
        os.replace(filled_again, path)
        with pytest.raises(CorruptionError, match="says it is number"):
            read_manifest(directory, 4)


def test_wrong_number_and_edit_that_does_not_fit(directory):
    filled(directory, VersionEdit.of(removed=(99,)))
    with pytest.raises(CorruptionError, match="99 is not in the version"):
        read_manifest(directory, 4)
    os.rename(manifest_path(directory, 4), manifest_path(directory, 6))
    with pytest.raises(CorruptionError, match="number 4"):
        read_manifest(directory, 6)


def test_nothing_is_appended_behind_a_failed_record(directory):
    writer = ManifestWriter.create(directory, 4, FIRST, LATEST_FORMAT)
    # A descriptor that refuses writes, as a full disk does.
    real = writer._fd
    writer._fd = os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(IOError) as raised:
        writer.append(VersionEdit(last_seq=9))
    assert raised.value.errno == errno.EBADF
    os.close(writer._fd)
    writer._fd = real
    with pytest.raises(Error, match="new one must be started"):
        writer.append(VersionEdit(last_seq=9))
    writer.close()
    assert read_manifest(directory, 4).last_seq == 5


def test_a_failed_fsync_is_its_own_error(directory):
    read_end, write_end = os.pipe()
    try:
        with pytest.raises(SyncError):
            files.sync_file(write_end, "pipe")
    finally:
        os.close(read_end)
        os.close(write_end)


def test_current_names_a_manifest_strictly(directory):
    current.write_current(directory, 12)
    assert current.read_current(directory) == 12
    assert sorted(os.listdir(directory)) == ["CURRENT"]
    good = current.encode_current(12)
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1
        with pytest.raises(CorruptionError):
            current.decode_current(bytes(damaged), "CURRENT")
        with pytest.raises(CorruptionError):
            current.decode_current(good[:at], "CURRENT")
    with pytest.raises(CorruptionError):
        current.decode_current(b"../../etc/passwd 0000000000000000\n", "CURRENT")


def test_files_are_private(directory):
    path = filled(directory)
    current.write_current(directory, 4)
    for name in (path, os.path.join(directory, "CURRENT")):
        assert os.stat(name).st_mode & 0o777 == 0o600


def test_a_manifest_that_is_mostly_history_starts_anew(tmp_path, monkeypatch):
    """Opening reads the whole manifest: it stays in proportion to the tree, however long the database runs."""
    monkeypatch.setattr(version_set, "MANIFEST_LIMIT", 3000)
    db = lsmkv.open(tmp_path / "db", l0_compaction_trigger=2)
    seen, largest = set(), 0
    for i in range(120):
        db.update({b"a": b"", b"key%03d" % i: b"value", b"z": b""})  # tables that overlap, so they are merged
        db.flush()
        db._scheduler.wait_idle()
        (path,) = (tmp_path / "db").glob("MANIFEST-*")
        seen.add(path.name)
        largest = max(largest, path.stat().st_size)
    assert len(seen) > 3
    assert largest < 3000 + 1000, "the limit and an edit"
    db._shut(flush=False)
    with lsmkv.open(tmp_path / "db") as db:
        assert len(db) == 122


# Resuming -----------------------------------------------------------------------------------------------------


def test_a_resumed_manifest_goes_on_where_it_ended(directory):
    filled(directory, VersionEdit(last_seq=9))
    for last_seq in (10, 11, 12):
        state = read_manifest(directory, 4)
        assert state.resumable
        writer = ManifestWriter.resume(directory, state)
        writer.append(VersionEdit(last_seq=last_seq))
        writer.close()
    state = read_manifest(directory, 4)
    assert (state.last_seq, state.records, state.torn_bytes) == (12, 5, 0)
    with open(manifest_path(directory, 4), "rb") as file:
        assert manifest.head_damage(file.read(HEAD_BYTES), 4) is None


def test_what_is_not_known_to_be_synced_is_not_resumed(directory):
    path = filled(directory, VersionEdit(last_seq=9))
    with open(path, "rb") as file:
        good = file.read()
    newest = max((64, 128), key=lambda at: int.from_bytes(good[at : at + 8], "little"))
    for damaged in (good + b"torn", good[:newest] + bytes(24) + good[newest + 24 :]):
        with open(path, "wb") as file:
            file.write(damaged)
        state = read_manifest(directory, 4)
        assert state.last_seq == 9 and not state.resumable


def test_a_manifest_of_many_records_is_not_resumed(directory):
    edits = [VersionEdit(last_seq=9)] * (manifest.MOST_RESUMED - 2)
    filled(directory, *edits)
    assert read_manifest(directory, 4).resumable
    filled(directory, *edits, VersionEdit(last_seq=9), number=5)
    assert not read_manifest(directory, 5).resumable


def test_an_open_after_a_clean_close_changes_no_file(tmp_path):
    with lsmkv.open(tmp_path / "db") as db:
        db[b"k"] = b"v"

    def contents():
        return {path.name: path.read_bytes() for path in (tmp_path / "db").iterdir()}

    before = contents()
    for _ in range(3):
        with lsmkv.open(tmp_path / "db") as db:
            assert db[b"k"] == b"v"
        assert contents() == before


def test_an_open_whose_append_finds_no_room_goes_on_without_it(tmp_path, monkeypatch):
    """The failed append is a torn tail: nothing follows it, and the next edit starts another manifest."""
    db = lsmkv.open(tmp_path / "db")
    db[b"k"] = b"v"
    db._close_at_exit()
    write_all = files.write_all
    refused = []

    def write(fd, data, name):
        if "MANIFEST" in name and not refused:
            refused.append(name)
            write_all(fd, data[:-1], name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, data, name)

    monkeypatch.setattr(manifest, "write_all", write)
    with lsmkv.open(tmp_path / "db") as db:
        assert refused and db[b"k"] == b"v"
        db[b"more"] = b"w"
        db.flush()
        assert not os.path.exists(refused[0])
    with lsmkv.open(tmp_path / "db") as db:
        assert dict(db.items()) == {b"k": b"v", b"more": b"w"}
    assert lsmkv.verify(tmp_path / "db")
