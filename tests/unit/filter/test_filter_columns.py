"""Filters take columns, pickle, compress, and add from several threads."""

import pickle
import threading

import pytest

from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.filter.counting import CountingBloom
from lsmkv_ext.filter.rotating import RotatingBloom
from lsmkv_ext.filter.scalable import ScalableBloom

numpy = pytest.importorskip("numpy")

KINDS = [BlockedBloom, CountingBloom, RotatingBloom, ScalableBloom]
N = 10_000  # several chunks


def rows(n=N, seed=1):
    return numpy.random.default_rng(seed).integers(0, 256, (n, 12), dtype=numpy.uint8)


def as_bytes(column):
    return [row.tobytes() for row in column]


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_is_its_rows(kind):
    column, other = rows(), rows(seed=2)
    by_column, by_row = kind(N, 0.01), kind(N, 0.01)
    by_column.add_many(column)
    by_row.add_many(as_bytes(column))
    assert by_column == by_row
    found = by_column.test_many(column)
    assert isinstance(found, memoryview) and numpy.asarray(found).dtype == bool and all(found)
    assert list(by_column.test_many(other)) == by_row.test_many(as_bytes(other))
    assert len(by_column.test_many(column[:0])) == 0
    pair = (column.tobytes(), numpy.arange(0, column.size + 1, 12))
    assert all(by_column.test_many(pair))


def test_a_pair_of_keys_is_no_column():
    bloom = BlockedBloom(10)
    bloom.add_many((b"ant", b"beetle88"))
    assert bloom.test_many((b"ant", b"beetle88")) == [True, True]
    assert b"bee" not in bloom


def test_chunks_of_a_stream_and_the_row_of_an_error():
    pyarrow = pytest.importorskip("pyarrow")
    parts = [as_bytes(rows(5000, seed)) for seed in range(3)]
    column = pyarrow.chunked_array([pyarrow.array(part, "binary") for part in parts])
    bloom = BlockedBloom(20_000)
    bloom.add_many(column)
    assert all(bloom.test_many(key for part in parts for key in part))
    parts[2][77] = None
    with pytest.raises(ValueError, match="row 10077 is null"):
        BlockedBloom(20_000).add_many(pyarrow.chunked_array([pyarrow.array(part, "binary") for part in parts]))


@pytest.mark.parametrize("call", ["add_many", "test_many"])
@pytest.mark.parametrize("keys", [b"bytes", 7, "text", numpy.arange(3)])
def test_what_is_no_column_is_refused(call, keys):
    with pytest.raises(TypeError):
        getattr(BlockedBloom(10), call)(keys)


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_and_copies(kind):
    bloom = kind(1000, 0.01, seed=7)
    bloom.add_many(rows(1000))
    again = pickle.loads(pickle.dumps(bloom))
    assert type(again) is kind and again == bloom and again.seed == 7
    twin = bloom.copy()
    twin.add_many(rows(1000, seed=2))
    assert twin != bloom and bloom == again


@pytest.mark.parametrize("kind", KINDS)
def test_compressed_bytes(kind):
    bloom = kind(100_000, 0.01)
    assert len(bloom.to_bytes(compress=True)) < len(bloom.to_bytes()) / 50
    bloom.add_many(rows(3000))
    packed = bloom.to_bytes(compress=True)
    assert len(packed) < len(bloom.to_bytes()) * 0.7
    assert kind.from_bytes(packed) == bloom
    full = BlockedBloom(3000, bits_per_key=10)
    full.add_many(rows(3000))
    assert len(full.to_bytes(compress=True)) <= len(full.to_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_digests_tell_filters_apart(kind):
    made = [kind(1000, 0.01), kind(1000, 0.02), kind(2000, 0.01), kind(1000, 0.01, seed=1), kind(1000, 0.01)]
    made[-1].add(b"ant")
    digests = [one.digest() for one in made]
    assert all(a != b for i, a in enumerate(digests) for b in digests[:i])
    assert set(digests[0]) == {"kind", "parameters", "count", "fingerprint"}
    assert digests[0] == kind(1000, 0.01).digest()
    assert digests[0]["parameters"] == digests[-1]["parameters"]


def add_from_threads(bloom, parts):
    start = threading.Barrier(len(parts))

    def work(part):
        start.wait()
        bloom.add_many(part)

    threads = [threading.Thread(target=work, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("capacity", [1, 500, 100_000])
def test_eight_threads_add_without_losing_a_bit(capacity):
    """The fewer blocks, the more often two threads change one at the same moment."""
    parts = [rows(20_000, seed) for seed in range(8)]
    alone = BlockedBloom(capacity, bits_per_key=20)
    for part in parts:
        alone.add_many(part)
    for _ in range(3):
        bloom = BlockedBloom(capacity, bits_per_key=20)
        add_from_threads(bloom, parts)
        assert bloom == alone
        assert bloom.count <= alone.count + 8 * bloom.n_blocks


@pytest.mark.parametrize("kind", KINDS[1:])
def test_the_other_kinds_lose_nothing_either(kind):
    parts = [rows(5000, seed) for seed in range(8)]
    bloom = kind(50_000, 0.01)
    add_from_threads(bloom, parts)
    assert all(all(bloom.test_many(part)) for part in parts)


def test_options_of_memory_change_no_answer():
    column = rows()
    plain = BlockedBloom(3_000_000, bits_per_key=8)  # above the size of a huge page
    plain.add_many(column)
    for options in ({"huge_pages": False}, {"prefault": True}, {"huge_pages": False, "prefault": True}):
        for capacity in (10, 3_000_000):
            assert BlockedBloom(capacity, **options).fill_ratio == 0
        bloom = BlockedBloom(3_000_000, bits_per_key=8, **options)
        bloom.add_many(column)
        assert bloom == plain


def test_prefaulted_memory_is_resident():
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096

    before = resident()
    bloom = BlockedBloom(30_000_000, bits_per_key=8, prefault=True)
    assert resident() - before > 0.9 * bloom.nbytes
