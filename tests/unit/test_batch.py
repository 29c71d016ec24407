"""Operations: encoded and decoded in one place, and never a wrong answer from damaged bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import counted, delete, delete_range, put, varint

import lsmkv
from lsmkv_ext.batch import decode_operations
from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.wal.dump import LogDump

BYTES = st.binary(max_size=200)
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), BYTES, BYTES),
    st.tuples(st.just("put"), BYTES, BYTES, st.integers(1, 1 << 62)),
    st.tuples(st.just("delete"), BYTES, st.none()),
    st.tuples(st.just("delete_range"), BYTES, BYTES),
)
ENCODERS = {"put": put, "delete": lambda key, _: delete(key), "delete_range": delete_range}


def encode(operations) -> bytes:
    encoded = [(keyspace, encode_one(*operation)) for operation, keyspace in operations]
    return b"".join(in_keyspace(keyspace, operation) if keyspace else operation for keyspace, operation in encoded)


def encode_one(name, key, value, expiry=0) -> bytes:
    return expiring(key, value, expiry) if expiry else ENCODERS[name](key, value)


def expiring(key: bytes, value: bytes, expiry: int) -> bytes:
    return b"\x04" + counted(key) + expiry.to_bytes(8, "little") + counted(value)


def in_keyspace(keyspace: int, operation: bytes) -> bytes:
    return bytes([operation[0] | 16]) + varint(keyspace) + operation[1:]


@given(st.lists(st.tuples(OPERATIONS, st.sampled_from([0, 1, 300, (1 << 32) - 1])), max_size=10))
@settings(max_examples=100)
def test_operations_come_back_in_order_with_their_sequence_numbers(operations):
    decoded = decode_operations(encode(operations), len(operations), 40)
    wanted = [(*o[:3], 40 + n, keyspace, *(o[3:] or [0])) for n, (o, keyspace) in enumerate(operations)]
    assert decoded == wanted


def test_a_batch_is_logged_as_it_is_decoded(tmp_path):
    with lsmkv.open(tmp_path / "db", large_value_threshold=None) as db:
        users = db.keyspace("users")
        with db.write_batch() as batch:
            batch.put(b"k" * 300, b"v" * 70_000)
            batch.put(b"", b"", expire_at=5)
            batch.delete(b"gone")
            batch.delete_range(b"a", b"b", keyspace=users)
        dump = LogDump(db._engine.log.path)
        next(dump)
        record = next(dump)
        assert list(record["operations"]) == [
            ("put", b"k" * 300, b"v" * 70_000, 1, 0, 0),
            ("put", b"", b"", 2, 0, 5000),
            ("delete", b"gone", None, 3, 0, 0),
            ("delete_range", b"a", b"b", 4, 1, 0),
        ]
        assert record["count"] == 4


@pytest.mark.parametrize("more", [-1, 1])
def test_a_count_that_is_off_by_one_is_refused(more):
    payload = put(b"a", b"1") + delete(b"b")
    with pytest.raises(CorruptionError, match=r"fewer operations|longer than its operations"):
        decode_operations(payload, 2 + more, 1)


def test_bytes_without_operations_are_refused():
    assert decode_operations(b"", 0, 1) == []
    with pytest.raises(CorruptionError, match="longer than its operations"):
        decode_operations(b"\0", 0, 1)


def test_every_cut_is_refused():
    payload = put(b"key", b"value") + delete(b"k" * 130) + delete_range(b"a", b"b")
    for cut in range(len(payload)):
        with pytest.raises(CorruptionError):
            decode_operations(payload[:cut], 3, 1)


@pytest.mark.parametrize(
    "payload",
    [
        delete(b"k" * 65536),
        b"\0" + counted(b"k") + varint((1 << 30) + 1),
        delete_range(b"a", b"b" * 65536),
        b"\x01" + b"\xff" * 10,  # a varint over 64 bits
        in_keyspace(0, delete(b"k")),
        in_keyspace(1 << 32, delete(b"k")),
        expiring(b"k", b"v", 0),
        expiring(b"k", b"v", (1 << 62) + 1),
        expiring(b"k", b"v", 1)[:6],
    ],
)
def test_malformed_operations_are_refused(payload):
    with pytest.raises(CorruptionError, match="malformed"):
        decode_operations(payload, 1, 1)


@pytest.mark.parametrize("first", [3, 5, 6, 9, 10, 19, 32, 64, 128, 255])
def test_unknown_operations_are_refused(first):
    with pytest.raises(CorruptionError, match="unknown operation"):
        decode_operations(bytes([first]) + counted(b"k") + counted(b"v"), 1, 1)


@given(payload=st.binary(max_size=60), count=st.integers(0, 5))
@settings(max_examples=300)
def test_decoding_never_crashes(payload, count):
    try:
        operations = decode_operations(payload, count, 1)
    except CorruptionError:
        return
    assert len(operations) == count


def test_an_iterator_is_no_keyspace(db):
    with db.write_batch() as batch, pytest.raises(TypeError, match="must be a Keyspace"):
        batch.put(b"k", b"v", keyspace=db.iterator())
