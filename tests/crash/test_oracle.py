"""The oracle must see every kind of loss: a judge that never convicts is no judge."""

from __future__ import annotations

import pytest

from . import oracle, writing


@pytest.fixture
def book(tmp_path):
    """k1=a acknowledged, then {k2=b, k1 deleted} pending."""
    writer = oracle.Writer(tmp_path / "oracle")
    writer.acked(writer.pending([(b"p", b"k1", b"a")], False))
    writer.pending([(b"p", b"k2", b"b"), (b"d", b"k1")], True)
    return tmp_path / "oracle"


def test_reads_back_what_was_written(book):
    first, second = oracle.read(book)
    assert (first.batch, first.status, first.sync) == ([(b"p", b"k1", b"a")], oracle.ACKED, False)
    assert (second.status, second.sync, len(second.batch)) == (oracle.PENDING, True, 2)


def test_pending_may_be_absent_or_there(book):
    assert oracle.settle(oracle.read(book), {b"k1": b"a"}).settled == {1: False}
    assert oracle.settle(oracle.read(book), {b"k2": b"b"}).settled == {1: True}


@pytest.mark.parametrize(
    "found",
    [{}, {b"k1": b"x"}, {b"k1": b"a", b"k2": b"b"}, {b"k1": b"a", b"k3": b""}],
    ids=["lost", "wrong", "half a batch", "invented"],
)
def test_every_kind_of_damage_is_seen(book, found):
    assert oracle.settle(oracle.read(book), found).problems


@pytest.mark.parametrize("judge", [oracle.settle, oracle.settle_prefix, oracle.settle_failed])
def test_an_expired_put_is_a_delete(tmp_path, judge):
    writer = oracle.Writer(tmp_path / "oracle")
    writer.acked(writer.pending([(b"p", b"k", b"old"), (b"t", b"kept", b"v")], True))
    writer.acked(writer.pending([(b"x", b"k", b"expired")], True))
    entries = oracle.read(tmp_path / "oracle")
    assert judge(entries, {b"kept": b"v"}).problems == []
    for found in ({}, {b"k": b"old", b"kept": b"v"}, {b"k": b"expired", b"kept": b"v"}):
        assert judge(entries, found).problems


def test_a_settled_batch_is_held_to_its_answer(book):
    writer = oracle.Writer(book)
    writer.settled(1, True)
    assert oracle.settle(oracle.read(book), {b"k2": b"b"}).problems == []
    assert oracle.settle(oracle.read(book), {b"k1": b"a"}).problems


def test_numbers_go_on_after_a_reopen(book):
    assert oracle.Writer(book).pending([(b"d", b"k")], False) == 2


def test_a_mark_that_a_kill_cut_short_was_never_made(book):
    whole = book.read_bytes()
    for cut in range(1, 20):
        book.write_bytes(whole[:-cut])
        assert len(oracle.read(book)) == 1
        assert oracle.Writer(book).pending([(b"d", b"k")], False) == 1
        assert [entry.number for entry in oracle.read(book)] == [0, 1]


def test_a_changed_oracle_is_an_error(book):
    data = bytearray(book.read_bytes())
    data[-1] ^= 1
    book.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        oracle.read(book)


def test_failed_batches_leave_a_choice_per_key_but_not_half_a_batch(tmp_path):
    writer = oracle.Writer(tmp_path / "oracle")
    writer.acked(writer.pending([(b"p", b"a", b"0"), (b"p", b"b", b"0")], False))
    writer.failed(writer.pending([(b"p", b"a", b"1"), (b"p", b"b", b"1")], False))
    writer.acked(writer.pending([(b"p", b"c", b"2")], False))
    entries = oracle.read(tmp_path / "oracle")

    def problems(**found):
        return oracle.settle_failed(entries, {k.encode(): v.encode() for k, v in found.items()}).problems

    assert problems(a="0", b="0", c="2") == []
    assert problems(a="1", b="1", c="2") == []
    assert problems(a="0", b="1", c="2")
    assert problems(a="0", b="0")
    assert problems(a="7", b="7", c="2")
    assert problems(a="0", b="0", c="2", d="9")


def test_delete_range_reaches_only_its_range():
    model = {b"a": b"", b"b": b"", b"c": b""}
    oracle.apply(model, [(b"r", b"a", b"c")])
    assert model == {b"c": b""}


@pytest.fixture
def cut(tmp_path):
    """k=1 synced, k=2 acknowledged but not synced, k=3 pending."""
    writer = oracle.Writer(tmp_path / "oracle")
    for number, value in enumerate([b"1", b"2", b"3"]):
        writer.pending([(b"p", b"k", value)], number == 0)
        if number < 2:
            writer.acked(number)
    return oracle.read(tmp_path / "oracle")


@pytest.mark.parametrize(("value", "there"), [(b"1", 1), (b"2", 2), (b"3", 3)])
def test_after_a_power_cut_any_prefix_with_the_synced_part_is_right(cut, value, there):
    finding = oracle.settle_prefix(cut, {b"k": value})
    assert finding.problems == []
    assert sum(finding.settled.values()) == there


@pytest.mark.parametrize("found", [{}, {b"k": b"9"}, {b"k": b"1", b"x": b""}], ids=["lost", "wrong", "invented"])
def test_after_a_power_cut_losing_the_synced_part_is_seen(cut, found):
    assert oracle.settle_prefix(cut, found).problems


def test_acknowledgements_of_a_dying_file_system_do_not_count(tmp_path):
    writer = oracle.Writer(tmp_path / "oracle")
    first = writer.pending([(b"p", b"k", b"1")], True)
    writer.cut()
    writer.acked(first)
    writer.opened()
    writer.acked(writer.pending([(b"p", b"k", b"2")], True))
    assert [entry.status for entry in oracle.read(tmp_path / "oracle")] == [oracle.PENDING, oracle.ACKED]


def test_a_writer_that_starts_keeps_the_mark_of_a_power_cut(tmp_path, monkeypatch):
    """What the dying file system then acknowledged counted as synced."""
    path = tmp_path / "book"
    oracle.Writer(path).opened()
    records, cuts = oracle.records, 0

    def records_and_cut(path):
        nonlocal cuts
        cuts += 1
        found = list(records(path))
        monkeypatch.setattr(oracle, "records", records)
        oracle.Writer(path, alone=False).cut()
        monkeypatch.setattr(oracle, "records", records_and_cut)
        return found

    monkeypatch.setattr(oracle, "records", records_and_cut)
    errors = []
    writing._writer(None, str(path), "seed", 0, 8, False, errors)
    monkeypatch.undo()
    assert errors == []
    assert [kind for kind, *_ in oracle.records(path)] == [oracle.OPENED, *[oracle.CUT] * cuts]
