"""The option `memory`: one size for write buffers, block cache, row cache, indexes and filters."""

import os
import subprocess
import sys

import pytest
from databases import fill

import lsmkv
from lsmkv.memory_split import LARGEST_BUFFER, split

MIB = 1 << 20


@pytest.mark.parametrize("memory", [64 << 10, 1 * MIB, 10 * MIB + 1, 256 * MIB, 64 << 30])
@pytest.mark.parametrize("buffers", [2, 3, 64])
def test_the_parts_and_a_borrowed_write_buffer_fit_into_seven_eighths(memory, buffers):
    if buffers == 64 and memory < MIB:
        pytest.skip("65 write buffers of 4 KiB are more")
    for row_cache_size in (None, 0, 4096):
        options = lsmkv.Options(memory=memory, max_write_buffers=buffers, row_cache_size=row_cache_size)
        taken = options.write_buffer_size * (buffers + 1) + options.block_cache_size + (row_cache_size or 0)
        assert memory * 7 // 8 - 1 <= taken <= memory * 7 // 8 + 1
        assert options.block_bytes > 0
        assert 4096 <= options.write_buffer_size <= LARGEST_BUFFER
        assert options.cache_index_and_filter_blocks


def test_sizes_that_are_given_stay_and_the_others_share_the_rest():
    options = lsmkv.Options(memory=256 * MIB, block_cache_size=64 * MIB)
    assert (options.block_cache_size, options.write_buffer_size) == (64 * MIB, 40 * MIB)
    options = options.replace(memory=128 * MIB)
    assert (options.block_cache_size, options.write_buffer_size) == (64 * MIB, 12 * MIB)
    options = lsmkv.Options(memory=256 * MIB, write_buffer_size=16 * MIB)
    assert (options.block_cache_size, options.write_buffer_size) == (160 * MIB, 16 * MIB)
    assert lsmkv.Options(block_cache_size=64 * MIB).replace(memory=256 * MIB).write_buffer_size == 40 * MIB
    assert lsmkv.Options(memory=256 * MIB).replace(memory=None) == lsmkv.Options()
    assert split(8 * MIB, 3, None, 4 * MIB, 0).write_buffer_size == 768 << 10


@pytest.mark.parametrize(
    "sizes",
    [
        {"write_buffer_size": 64 * MIB},
        {"block_cache_size": 250 * MIB},
        {"row_cache_size": 250 * MIB},
        {"write_buffer_size": 32 * MIB, "block_cache_size": 128 * MIB},
        {"max_write_buffers": 64, "write_buffer_size": 8 * MIB},
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(lsmkv.OptionError, match="memory=268435456 is too small"):
        lsmkv.Options(memory=256 * MIB, **sizes)


def test_indexes_and_filters_cannot_be_left_out():
    with pytest.raises(lsmkv.OptionError, match="cache_index_and_filter_blocks"):
        lsmkv.Options(memory=256 * MIB, cache_index_and_filter_blocks=False)


def test_the_file_of_options_stores_what_was_given():
    options = lsmkv.Options(memory=256 * MIB, block_cache_size=64 * MIB)
    stored = lsmkv.Options.decode(options.encode())
    assert stored == options
    assert stored.replace(memory=128 * MIB) == lsmkv.Options(memory=128 * MIB, block_cache_size=64 * MIB)
    assert lsmkv.Options.from_dict(options.to_dict()) == options


def test_memory_changes_on_an_open_database(path):
    with lsmkv.open(path, memory=64 * MIB) as db:
        assert db.stats().memory == lsmkv.stats.metrics.MemoryStats(64 * MIB, 24 * MIB, 24 * MIB - 1572864, 1572864, 0)
        assert db.stats().cache.capacity == db.options.block_bytes + db.options.write_buffer_size
        db.set_options(memory=32 * MIB)
        assert db.options.write_buffer_size == 4 * MIB
        assert db.stats().cache.capacity == db.options.block_bytes + 4 * MIB
        with pytest.raises(lsmkv.OptionError, match="too small"):
            db.set_options(write_buffer_size=16 * MIB)
        with pytest.raises(lsmkv.OptionError, match="on or off"):
            db.set_options(memory=None)
        assert db.options == lsmkv.Options(memory=32 * MIB)
    with lsmkv.open(path) as db, pytest.raises(lsmkv.OptionError, match="on or off"):
        db.set_options(memory=32 * MIB)


def test_filters_of_all_keyspaces_take_at_most_half_of_the_block_cache(path):
    with lsmkv.open(path, memory=128 << 10, bits_per_key=20) as db:
        users = db.keyspace("users", bits_per_key=30)
        for space in (db, users):
            fill(space, 6000, size=12)
        db.compact_range()
        users.compact_range()
        for space in (db, users):
            space.rebuild_filters()  # the first tables did not know the others
        taken = sum(table.filter_info["bytes"] for table in db._versions.tables.values())
        # Filters are rounded up to 64 bytes, every table has one, and 2 % of the bits are not worth a rebuild.
        assert 0 < taken <= db.options.filter_limit * 1.03 + 128 * len(db._versions.tables)
        assert taken > db.options.filter_limit // 2
        assert db.stats().cache.used >= taken
        assert all(space[b"key%06d" % i] for space in (db, users) for i in range(0, 6000, 97))


WORK = """
import os, random, sys
import lsmkv

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10

base, most = resident(), 0
value = os.urandom(150)
rng = random.Random(5)
with lsmkv.open(sys.argv[1], memory=int(sys.argv[2]) << 20) as db:
    users = db.keyspace("users")
    for i in range(1_200_000):
        (users if i & 1 else db).put(b"%012d" % rng.randrange(10**9), value)
        if not i % 4096:
            most = max(most, resident())
    for i in range(100_000):
        next(db.iterator(start=b"%012d" % rng.randrange(10**9)), None)
        if not i % 4096:
            most = max(most, resident())
    for n, _ in enumerate(users.items()):
        if not n % 4096:
            most = max(most, resident())
    for i in range(100_000):
        users.put(b"%012d" % rng.randrange(10**9), value)
        if not i % 4096:
            most = max(most, resident())
print(most - base)
"""


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer keeps freed memory")
def test_the_resident_set_stays_below_it(path):
    """200 MiB of records: writes, compactions, seeks and scans, in two keyspaces."""
    done = subprocess.run([sys.executable, "-c", WORK, str(path), "48"], check=True, capture_output=True, text=True)
    assert 20 < int(done.stdout) <= 48 + 32
