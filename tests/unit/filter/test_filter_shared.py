"""`BlockedBloom.open_shared`: one file, several processes."""

import gc
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading

import pytest

import lsmkv
from lsmkv_ext.filter import shared_file
from lsmkv_ext.filter.bloom import BlockedBloom

open_shared = BlockedBloom.open_shared


def numbered(n, start=0):
    return [b"key%09d" % i for i in range(start, start + n)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "seen.filter"


def test_keys_survive_a_close(path):
    with open_shared(path, 1000, 0.01, seed=9) as seen:
        assert (seen.seed, seen.capacity >= 1000, seen.path) == (9, True, str(path))
        seen.add_many(numbered(1000))
        count = seen.count
    with open_shared(path) as seen:
        assert all(seen.test_many(numbered(1000)))
        assert seen.count == count > 900
        assert seen.bits_per_key == BlockedBloom(1000, 0.01).bits_per_key
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["seen.filter"]


def test_two_handles_see_each_other_at_once(path):
    with open_shared(path, 1000) as one, open_shared(path) as two:
        one.add(b"ant")
        assert b"ant" in two
        assert two.test_and_add(b"ant") is True
        two.clear()
        assert b"ant" not in one and one.count == 0
        private = BlockedBloom(1000)
        private.add(b"bee")
        one.merge(private)
        assert b"bee" in two and two == private


def test_a_file_never_grows(path):
    open_shared(path, 1000, bits_per_key=10).close()
    for options in ({"capacity": 100_000, "bits_per_key": 10}, {"bits_per_key": 12}, {"seed": 1}):
        with pytest.raises(ValueError, match="does not grow"):
            open_shared(path, **options)
    open_shared(path, 1000, bits_per_key=10, seed=0).close()


def test_a_missing_file_needs_a_capacity(path):
    with pytest.raises(lsmkv.IOError, match="No such file"):
        open_shared(path)
    with pytest.raises(ValueError, match="capacity"):
        open_shared(path, 0)
    with pytest.raises(lsmkv.IOError):
        open_shared(path / "missing" / "folder", 10)
    assert not path.exists()


def test_a_closed_filter_raises(path):
    seen = open_shared(path, 10)
    seen.close()
    seen.close()
    for use in (
        lambda: seen.add(b"a"),
        lambda: b"a" in seen,
        lambda: seen.add_many([b"a"]),
        lambda: seen.test_many([b"a"]),
        lambda: seen.test_and_add(b"a"),
        seen.to_bytes,
        seen.copy,
        seen.clear,
        seen.flush,
        seen.digest,
        seen.__enter__,
        lambda: seen.fill_ratio,
        lambda: seen.count,
        lambda: seen == BlockedBloom(10),
        lambda: seen.merge(BlockedBloom(10)),
        lambda: BlockedBloom(10).merge(seen),
    ):
        with pytest.raises(lsmkv.ClosedError):
            use()
    private = BlockedBloom(10)
    private.close()
    private.add(b"a")


def test_a_close_inside_a_call_is_refused(path):
    seen = open_shared(path, 10)

    def keys():
        yield from numbered(5000)  # more than are taken at once
        with pytest.raises(lsmkv.Error, match="is running"):
            seen.close()

    seen.add_many(keys())
    seen.close()


def test_a_close_before_the_first_key_is_added(path):
    seen = open_shared(path, 10)

    def keys():
        yield b"a"
        seen.close()

    with pytest.raises(lsmkv.ClosedError):
        seen.add_many(keys())


def test_a_filter_that_is_dropped_is_sealed(path):
    seen = open_shared(path, 10)
    seen.add(b"ant")
    del seen
    assert struct.unpack_from("<Q", path.read_bytes(), shared_file.STATE_OFFSET)[0] == shared_file.SEALED


def test_a_filter_in_a_collected_cycle_is_sealed(path):
    seen = open_shared(path, 10)
    seen.add(b"ant")
    cycle = [seen]
    cycle.append(cycle)
    del seen, cycle
    gc.collect()
    with open_shared(path) as again:
        assert b"ant" in again


def test_copies_and_pickles_are_private(path):
    with open_shared(path, 100) as seen:
        seen.add(b"ant")
        for twin in (seen.copy(), pickle.loads(pickle.dumps(seen))):
            assert twin.path is None and twin == seen
            twin.add(b"bee")
        assert b"bee" not in seen


def test_every_flipped_bit_of_a_sealed_file_is_refused(path):
    with open_shared(path, 50) as seen:
        seen.add_many(numbered(50))
    good = path.read_bytes()
    protected = [*range(64), *range(64, 112), *range(4096, len(good))]
    for at in protected:
        for bit in range(8):
            damaged = bytearray(good)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(lsmkv.CorruptionError, match="not a shared filter"):
                open_shared(path)
    path.write_bytes(good)
    open_shared(path).close()


@pytest.mark.parametrize("size", [0, 63, 4095, 4096, 4096 + 63])
def test_a_file_of_another_length_is_refused(path, size):
    open_shared(path, 10).close()
    os.truncate(path, size)
    with pytest.raises(lsmkv.CorruptionError):
        open_shared(path)


CHILD = """
import lsmkv, os, sys
seen = lsmkv.BlockedBloom.open_shared(sys.argv[1], 99)
seen.add(b"ant")
os.kill(os.getpid(), 9)
"""


def child_adds_and_is_killed(path):
    assert subprocess.run([sys.executable, "-c", CHILD, str(path)]).returncode == -signal.SIGKILL


def test_keys_survive_a_kill(path):
    child_adds_and_is_killed(path)
    with open_shared(path) as seen:
        assert b"ant" in seen


def test_a_file_that_was_open_when_the_machine_went_down_is_refused(path, monkeypatch):
    child_adds_and_is_killed(path)
    monkeypatch.setattr(shared_file, "boot_id", lambda: b"another boot id.")
    for _ in range(2):
        with pytest.raises(lsmkv.CorruptionError, match="machine went down"):
            open_shared(path)
    with open_shared(path, recover=True) as seen:
        assert b"ant" in seen
    open_shared(path).close()


def test_an_unknown_boot_counts_as_another(path, monkeypatch):
    monkeypatch.setattr(shared_file, "boot_id", lambda: bytes(16))
    child_adds_and_is_killed(path)
    with pytest.raises(lsmkv.CorruptionError, match="machine went down"):
        open_shared(path)


def add_in_process(path, n, start):
    with open_shared(path, 20_000) as seen:
        for key in numbered(n, start):
            seen.add(key)
        seen.add_many(numbered(n, start + n))


def test_several_processes_add_to_one_file(path):
    """All of them may create it, and the last one seals it."""
    spawn = multiprocessing.get_context("spawn")
    children = [spawn.Process(target=add_in_process, args=(path, 2000, 4000 * i)) for i in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    alone = BlockedBloom(20_000)
    alone.add_many(numbered(16_000))
    with open_shared(path) as seen:
        assert seen == alone


def test_opens_and_closes_at_the_same_time(path):
    """A close that seals meets opens that break the seal."""
    failed = []

    def work(number):
        try:
            for i in range(60):
                with open_shared(path, 1000) as seen:
                    seen.add(b"%d %d" % (number, i))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with open_shared(path) as seen:
        assert all(b"%d %d" % (number, i) in seen for number in range(4) for i in range(60))


def test_a_child_of_a_fork_opens_its_own(path):
    seen = open_shared(path, 100)
    seen.add(b"ant")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen.add(b"bee")
        except lsmkv.ForkError:
            seen.close()
            with open_shared(path) as own:
                own.add(b"cow")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert b"cow" in seen and b"bee" not in seen
    with open_shared(path) as other:  # the child has not taken the lock along
        assert b"cow" in other
    seen.close()
    with open_shared(path) as again:
        assert again.test_many([b"ant", b"cow"]) == [True, True]


def test_eight_threads_add_to_a_shared_file_without_losing_a_bit(path):
    parts = [numbered(5000, 5000 * i) for i in range(8)]
    alone = BlockedBloom(500)
    for part in parts:
        alone.add_many(part)
    with open_shared(path, 500, prefault=True) as seen:
        threads = [threading.Thread(target=seen.add_many, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == alone
