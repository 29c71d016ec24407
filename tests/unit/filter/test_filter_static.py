"""`FuseFilter`, the binary fuse filter as a public class."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lsmkv
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.filter.bloom import BlockedBloom
from lsmkv_ext.filter.fuse_filter import FuseFilter

N = 100_000


def numbered(n, start=0):
    return [b"key%09d" % i for i in range(start, start + n)]


@given(st.lists(st.binary(max_size=12), max_size=200), st.integers(4, 16), st.integers(0, 2**64 - 1))
def test_no_false_negatives_and_a_round_trip(keys, width, seed):
    made = FuseFilter(keys, width, seed=seed)
    for one in (made, FuseFilter.from_bytes(made.to_bytes()), FuseFilter.from_bytes(made.to_bytes(compress=True))):
        assert all(one.test_many(keys)) and all(key in one for key in keys)
        assert one == made and one.to_bytes() == made.to_bytes() and one.digest() == made.digest()
        assert (one.count, one.fingerprint_bits, one.seed) == (len(set(keys)), width, seed)
    assert pickle.loads(pickle.dumps(made)) == made == made.copy()


@pytest.mark.parametrize(("width", "bits"), [(4, 4.8), (8, 9.6), (12, 14.4)])
def test_size_and_rate(width, bits):
    made = FuseFilter(numbered(N), width)
    assert made.bits_per_key <= bits
    assert made.nbytes * 8 / N == pytest.approx(made.bits_per_key)
    assert made.designed_fpr == made.expected_fpr == 2.0**-width
    absent = 400_000
    wrong = sum(made.test_many(numbered(absent, start=N)))
    assert abs(wrong - absent / 2**width) < 5 * (absent / 2**width) ** 0.5
    assert 0.8 < made.fill_ratio < 1 and not made.saturated
    assert made.count == made.capacity == made.approximate_count == N


def test_columns():
    numpy = pytest.importorskip("numpy")
    column = numpy.random.default_rng(1).integers(0, 256, (N, 12), dtype=numpy.uint8)
    rows = [row.tobytes() for row in column]
    assert FuseFilter(column) == FuseFilter(rows) == FuseFilter(iter(rows))
    assert all(FuseFilter(rows).test_many(column))
    with pytest.raises(TypeError, match="dtype S or V"):
        FuseFilter(numpy.arange(3))


def test_repeated_keys_count_once():
    made = FuseFilter(numbered(1000) * 50)
    assert made.count == 1000 and all(made.test_many(numbered(1000)))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([], 3), {}, ValueError, "fingerprint_bits"),
        (([], 17), {}, ValueError, "fingerprint_bits"),
        (([], 8.0), {}, TypeError, "fingerprint_bits"),
        (([],), {"seed": -1}, ValueError, "seed"),
        (([],), {"seed": "x"}, TypeError, "seed"),
        ((7,), {}, TypeError, "not iterable"),
        ((["text"],), {}, TypeError, "bytes"),
        ((b"bytes",), {}, TypeError, "dtype S or V"),
    ],
)
def test_bad_parameters_are_named(arguments, options, error, message):
    with pytest.raises(error, match=message):
        FuseFilter(*arguments, **options)


def test_nothing_can_be_added():
    made = FuseFilter([b"ant"])
    for name in ("add", "add_many", "test_and_add", "merge", "clear"):
        assert not hasattr(made, name)


def test_made_once_and_of_no_use_before_init():
    with pytest.raises(TypeError, match="made once"):
        FuseFilter([b"a"]).__init__([b"b"])
    bare = FuseFilter.__new__(FuseFilter)
    for use in (lambda: b"a" in bare, lambda: bare.test_many([b"a"]), bare.to_bytes, bare.digest, bare.copy):
        with pytest.raises(ValueError, match="not initialized"):
            use()
    assert (bare.count, bare.nbytes) == (0, 0) and repr(bare)


def test_an_iterable_that_makes_the_filter_again():
    made = FuseFilter.__new__(FuseFilter)

    def keys():
        made.__init__([b"inner"])
        yield b"outer"

    with pytest.raises(TypeError, match="made once"):
        made.__init__(keys())
    assert b"inner" in made


def test_every_flipped_bit_is_refused():
    blob = FuseFilter(numbered(20)).to_bytes()
    for i in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[i >> 3] ^= 1 << (i & 7)
        with pytest.raises(CorruptionError, match="not a filter"):
            FuseFilter.from_bytes(damaged)
    for n in (0, 63, 64, 65, len(blob) - 1):
        with pytest.raises(CorruptionError, match="not a filter"):
            FuseFilter.from_bytes(blob[:n])


def test_kinds_refuse_each_other():
    with pytest.raises(CorruptionError, match="not a filter"):
        FuseFilter.from_bytes(BlockedBloom(100).to_bytes())
    with pytest.raises(CorruptionError, match="not a filter"):
        BlockedBloom.from_bytes(FuseFilter(numbered(100)).to_bytes())


def test_equality_and_text():
    made = FuseFilter(numbered(50))
    assert made == FuseFilter(numbered(50)) and made != FuseFilter(numbered(51)) and made != b"a filter"
    assert made != FuseFilter(numbered(50), seed=1) and made.digest() != FuseFilter(numbered(50), 9).digest()
    with pytest.raises(TypeError):
        hash(made)
    assert "count=50" in repr(made) and made.__sizeof__() > made.nbytes
    assert isinstance(made, lsmkv.FuseFilter)


def test_documented_vector():
    """The example of docs/format.md, byte for byte."""
    blob = FuseFilter([b"alpha", b"beta", b""], seed=42).to_bytes()
    assert blob[:64].hex() == HEADER
    assert blob[64:].hex() == SLOTS


def test_documented_vector_with_four_positions():
    """The checksum in the header pins all slots."""
    blob = FuseFilter([b"%d" % i for i in range(20_000)], seed=42).to_bytes()
    assert len(blob) == 64 + 23_296
    assert blob[:80].hex() == FOUR_POSITIONS


HEADER = (
    "4c4b564601020108180000000000000003000000000000002a00000000000000"
    "a0860100000300000000000000000000f2e19360e7529253091aa3d4127f9d58"
)
SLOTS = "550e000043" + 59 * "00"
FOUR_POSITIONS = (
    "4c4b564601020108005b000000000000204e0000000000002a00000000000000"
    "662400000008000400000000000000007ce37d759cdcad6a1443edbec507f85c"
    "f399b77300007600972c6100e0000000"
)
