"""SSTWriter and SSTReader: a table file outside a database."""

import os
import stat
import subprocess
import sys
import textwrap

import pytest

import lsmkv
from lsmkv_ext.errors import ClosedError, CorruptionError, ForkError, OptionError
from lsmkv_ext.errors import IOError as LsmIOError
from lsmkv_ext.table.sst_reader import SSTReader
from lsmkv_ext.table.sst_writer import SSTWriter


def test_write_then_read(tmp_path):
    path = tmp_path / "t.sst"
    with SSTWriter(path, bits_per_key=12) as writer:
        for i in range(1000):
            writer.put(b"%04d" % i, b"value %d" % i)
    assert writer.summary["n_entries"] == 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with SSTReader(path) as reader:
        assert len(reader) == 1000
        assert reader[b"0500"] == reader.get(b"0500") == b"value 500"
        assert reader.get(b"nope") is None
        assert reader.get(b"nope", 3) == 3
        assert b"0999" in reader
        assert b"1000" not in reader
        with pytest.raises(KeyError):
            reader[b"x"]
        assert list(reader) == list(reader.keys()) == [b"%04d" % i for i in range(1000)]
        assert list(reader.items(b"0010", b"0012")) == [(b"0010", b"value 10"), (b"0011", b"value 11")]
        assert list(reader.values(b"0998", reverse=True)) == [b"value 999", b"value 998"]
        assert next(reversed(reader)) == b"0999"
        assert reader.filter_info["millibits"] == 12000
        assert reader.properties["n_entries"] == 1000
        assert reader.verify() == []
    assert reader.closed
    with pytest.raises(ClosedError):
        reader.get(b"0500")


def test_empty_keys_and_values_and_bytes_likes(tmp_path):
    path = os.fspath(tmp_path / "t.sst")
    with SSTWriter(path) as writer:
        writer.put(b"", b"")
        writer.put(bytearray(b"a"), memoryview(b"value"))
    with SSTReader(path) as reader:
        assert dict(reader.items()) == {b"": b"", b"a": b"value"}
        assert b"" in reader
        assert reader[bytearray(b"a")] == b"value"


def test_an_empty_table(tmp_path):
    SSTWriter(tmp_path / "t.sst").finish()
    with SSTReader(tmp_path / "t.sst") as reader:
        assert len(reader) == 0
        assert list(reader) == list(reversed(reader)) == []
        assert reader.get(b"a") is None
        assert reader.verify() == []


@pytest.mark.parametrize("second", [b"b", b"a", b""])
def test_unsorted_keys_are_refused_and_the_rest_is_kept(tmp_path, second):
    with SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"b", b"1")
        with pytest.raises(ValueError, match=r"strictly increasing order: b'.?' after b'b'"):
            writer.put(second, b"2")
        writer.put(b"c", b"3")
    assert dict(SSTReader(tmp_path / "t.sst").items()) == {b"b": b"1", b"c": b"3"}


def test_what_is_not_bytes_is_refused(tmp_path):
    with SSTWriter(tmp_path / "t.sst") as writer:
        for key, value in (("a", b"1"), (b"a", "1"), (1, b"1"), (b"a", None)):
            with pytest.raises(TypeError):
                writer.put(key, value)
        with pytest.raises(ValueError, match="65535"):
            writer.put(b"k" * 65536, b"")
        writer.put(b"k" * 65535, b"")
    with SSTReader(tmp_path / "t.sst") as reader:
        assert list(reader) == [b"k" * 65535]
        with pytest.raises(TypeError):
            reader.get("a")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("compression", "snappy"),
        ("block_size", 0),
        ("block_size", 1 << 30),
        ("block_size", "4k"),
        ("bits_per_key", -1),
        ("bits_per_key", 101),
        ("restart_interval", 0),
        ("seed", -1),
    ],
)
def test_wrong_options_are_named(tmp_path, option, value):
    with pytest.raises(OptionError, match=option):
        SSTWriter(tmp_path / "t.sst", **{option: value})
    assert list(tmp_path.iterdir()) == []


def test_an_exception_removes_the_file(tmp_path):
    with pytest.raises(ZeroDivisionError), SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"a", b"1")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ClosedError):
        writer.put(b"b", b"2")


def test_abort_and_forgotten_writers_leave_nothing(tmp_path):
    writer = SSTWriter(tmp_path / "a.sst")
    writer.put(b"a", b"1")
    writer.abort()
    writer.abort()
    forgotten = SSTWriter(tmp_path / "b.sst")
    del forgotten
    assert list(tmp_path.iterdir()) == []


def test_finish_once(tmp_path):
    writer = SSTWriter(tmp_path / "t.sst")
    writer.put(b"a", b"1")
    assert writer.size > 0
    summary = writer.finish()
    assert summary == writer.summary
    with pytest.raises(ClosedError):
        writer.finish()
    writer.abort()
    assert SSTReader(tmp_path / "t.sst")[b"a"] == b"1"


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "t.sst").write_bytes(b"precious")
    with pytest.raises(LsmIOError) as caught:
        SSTWriter(tmp_path / "t.sst")
    assert caught.value.errno == 17
    assert (tmp_path / "t.sst").read_bytes() == b"precious"


def test_deletes_and_range_tombstones(tmp_path):
    with SSTWriter(tmp_path / "t.sst") as writer:
        writer.put(b"a", b"1", seq=1)
        writer.delete(b"b", seq=2)
        writer.put(b"c", b"3", seq=3)
        writer.put(b"d", b"4", seq=9)
        writer.delete_range(b"c", b"e", seq=5)
        with pytest.raises(ValueError, match="start < stop"):
            writer.delete_range(b"e", b"e")
    with SSTReader(tmp_path / "t.sst") as reader:
        assert dict(reader.items()) == {b"a": b"1", b"d": b"4"}
        assert len(reader) == 2
        assert reader.get(b"b") is None
        assert reader.get(b"c") is None
        assert reader.table.range_tombstones == [(b"c", b"e", 5)]


def test_a_range_tombstone_spares_its_own_file(tmp_path):
    with SSTWriter(tmp_path / "t.sst") as writer:
        writer.delete_range(b"a", b"z")
        writer.put(b"m", b"1")
    assert dict(SSTReader(tmp_path / "t.sst").items()) == {b"m": b"1"}


def test_no_filter(tmp_path):
    with SSTWriter(tmp_path / "t.sst", bits_per_key=0) as writer:
        writer.put(b"a", b"1")
    with SSTReader(tmp_path / "t.sst") as reader:
        info = reader.filter_info
        assert (info["usable"], info["problem"], info["bytes"]) == (False, "absent", 0)
        assert reader[b"a"] == b"1"
        assert reader.verify() == []


def test_compression_per_block(tmp_path):
    sizes = {}
    for compression in (None, "lz4"):
        with SSTWriter(tmp_path / f"{compression}.sst", compression=compression) as writer:
            for i in range(200):
                writer.put(b"a%04d" % i, b"x" * 100)
            for i in range(200):
                writer.put(b"b%04d" % i, os.urandom(100))
        with SSTReader(tmp_path / f"{compression}.sst") as reader:
            kinds = [b["compression"] for b in reader.table.block_layout()]
            assert len(list(reader.items())) == 400
        sizes[compression] = writer.summary["data_bytes"]
        assert set(kinds) == ({None} if compression is None else {None, "lz4"})
    assert sizes["lz4"] < sizes[None] * 0.7


def test_damage_is_reported(tmp_path):
    path = tmp_path / "t.sst"
    with SSTWriter(path) as writer:
        writer.put(b"a", b"1")
    raw = bytearray(path.read_bytes())
    raw[0] ^= 1
    path.write_bytes(raw)
    with SSTReader(path) as reader:
        assert [f["offset"] for f in reader.verify()] == [0]
        with pytest.raises(CorruptionError) as caught:
            reader.get(b"a")
    assert (caught.value.file, caught.value.offset) == (str(path), 0)


def test_threads_that_share_a_writer_never_break_its_file(tmp_path):
    """Two of them inside the builder crashed the process. Now the second one is refused."""
    script = """
        import itertools, sys, threading
        from lsmkv_ext.errors import Error
        from lsmkv_ext.table.sst_reader import SSTReader
        from lsmkv_ext.table.sst_writer import SSTWriter
        sys.setswitchinterval(1e-5)
        writer = SSTWriter(sys.argv[1], block_size=512)
        numbers, added = itertools.count(), []

        def work():
            for _ in range(10_000):
                n = next(numbers)
                try:
                    writer.put(b"%010d" % n, b"v" * (n % 300))
                except ValueError:
                    continue  # another thread was faster with a larger key
                except Error as error:
                    assert "another thread" in str(error)
                    continue
                added.append(n)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.finish()
        with SSTReader(sys.argv[1]) as reader:
            assert reader.verify() == []
            assert list(reader.keys()) == [b"%010d" % n for n in sorted(added)]
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "t.sst")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_child_leaves_the_files_of_its_parent(tmp_path):
    path = tmp_path / "a.sst"
    writer = SSTWriter(path, large_value_threshold=64)
    writer.put(b"ada", b"x" * 100)
    pid = os.fork()
    if pid == 0:
        refused = False
        try:
            writer.put(b"bob", b"1")
        except ForkError:
            refused = True
        writer.abort()
        del writer
        os._exit(0 if refused else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert path.exists()
    writer.put(b"grace", b"y" * 100)
    writer.finish()
    with lsmkv.open(tmp_path / "db") as db:
        db.ingest([path])
        assert dict(db) == {b"ada": b"x" * 100, b"grace": b"y" * 100}
