"""The checker accepts right histories and rejects wrong ones; reduction keeps what is wrong about them."""

from __future__ import annotations

import random

import pytest

from .linearizability import Op, Round, check, check_rounds, reduce

A, B, C = "a", "b", "c"


def op(name, invoked, responded, reads=(), writes=(), thread=0):
    return Op(name, thread, invoked, responded, list(dict(reads).items()), dict(writes))


def put(key, tag, *span):
    return op("put", *span, writes={key: tag})


def get(key, tag, *span):
    return op("get", *span, reads={key: tag})


def batch(writes, *span):
    return op("batch", *span, writes=writes)


def scan(reads, *span):
    return op("scan", *span, reads=reads)


RIGHT = {
    "nothing": [],
    "in turn": [put(A, 1, 0, 1), get(A, 1, 2, 3), put(A, 2, 4, 5), get(A, 2, 6, 7)],
    "a read beside a put sees either": [put(A, 1, 0, 5), get(A, 0, 1, 2), get(A, 1, 3, 4)],
    "puts side by side, the first to begin wins": [put(A, 1, 0, 5), put(A, 2, 1, 3), get(A, 1, 6, 7)],
    "a delete beside a put": [put(A, 1, 0, 5), op("delete", 1, 4, writes={A: 0}), get(A, 1, 2, 3), get(A, 0, 6, 7)],
    "a batch is seen whole": [batch({A: 1, B: 1}, 0, 9), scan({A: 0, B: 0}, 1, 2), scan({A: 1, B: 1}, 3, 4)],
    "a range delete covers every key": [
        batch({A: 1, B: 2, C: 3}, 0, 1), op("delete_range", 2, 9, writes={A: 0, B: 0}), scan({A: 0, B: 0, C: 3}, 3, 4),
    ],
    "a call that raised did nothing": [put(A, 1, 0, 1), put(A, 2, 2, None), get(A, 1, 4, 5)],
    "a call that raised happens later": [put(A, 2, 2, None), get(A, 0, 4, 5), get(A, 2, 6, 7)],
    "a snapshot stays in its time": [
        put(A, 1, 0, 1), op("snapshot", 2, 3, reads={A: 1, B: 0}), batch({A: 2, B: 2}, 4, 5),
    ],
    "a read and a write at one moment": [
        put(A, 1, 0, 1), op("add", 2, 6, {A: 1}, {A: 2}), op("add", 3, 5, {A: 2}, {A: 3}),
    ],
}  # fmt: skip

WRONG = {
    "stale read": [put(A, 1, 0, 1), put(A, 2, 2, 3), get(A, 1, 4, 5)],
    "lost put": [put(A, 1, 0, 1), get(A, 0, 2, 3)],
    "a read goes back in time": [put(A, 1, 0, 9), get(A, 1, 1, 2), get(A, 0, 3, 4)],
    "lost update": [put(A, 1, 0, 1), op("add", 2, 6, {A: 1}, {A: 2}), op("add", 3, 5, {A: 1}, {A: 3})],
    "write skew": [op("tx", 0, 5, {A: 0, B: 0}, {A: 1}), op("tx", 1, 4, {A: 0, B: 0}, {B: 2})],
    "phantom": [op("tx", 0, 5, {A: 0, B: 0}, {C: 1}), op("tx", 1, 4, {C: 0}, {A: 2})],
    "half a batch": [batch({A: 1, B: 1}, 0, 9), scan({A: 1, B: 0}, 1, 2)],
    "half a batch over two reads": [batch({A: 1, B: 1}, 0, 9), get(A, 1, 1, 2), get(B, 0, 3, 4)],
    "a tag from nowhere": [put(A, 1, 0, 1), get(A, 7, 2, 3)],
    "a tag of another key": [put(A, 1, 0, 1), get(B, 1, 2, 3)],
    "a snapshot that moves": [put(A, 1, 0, 1), Op("snapshot", 0, 2, 3, [(A, 1), (A, 2)]), put(A, 2, 4, 5)],
    "a snapshot of two moments": [put(A, 1, 0, 1), put(B, 1, 2, 3), op("snapshot", 0, 9, reads={A: 0, B: 1})],
    "a deleted key comes back": [put(A, 1, 0, 1), op("delete", 2, 3, writes={A: 0}), get(A, 1, 4, 5)],
    "half a range delete": [
        batch({A: 1, B: 1}, 0, 1), op("delete_range", 2, 9, writes={A: 0, B: 0}), scan({A: 0, B: 1}, 3, 4),
    ],
    "two readers see two orders": [
        put(A, 1, 0, 9), put(B, 1, 0, 9),
        get(A, 1, 1, 2), get(B, 0, 3, 4), get(B, 1, 1, 2), get(A, 0, 3, 4),
    ],
    "a call that raised happens twice": [
        put(A, 2, 0, None), get(A, 2, 2, 3), put(A, 3, 4, 5), get(A, 3, 6, 7), get(A, 2, 8, 9),
    ],
    "a call that raised happens before it began": [get(A, 2, 0, 1), put(A, 2, 2, None)],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_history_is_accepted(name):
    verdict = check(RIGHT[name], {})
    assert verdict.order is not None
    assert {id(each) for each in RIGHT[name] if each.responded} <= {id(each) for each in verdict.order}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_rejected(name):
    assert check(WRONG[name], {}).rejected


def atomic_history(rng, threads=6, length=30, keys=4):
    """Operations on a dict, each at one moment inside of an interval; several intervals overlap."""
    state, ops, tag = {}, [], 0
    ends = [0] * threads
    for moment in range(10, 10 * length, 10):
        thread = rng.randrange(threads)
        if ends[thread] >= moment:
            continue
        span = (rng.randint(ends[thread] + 1, moment), rng.randint(moment, moment + 60))
        ends[thread] = span[1]
        chosen = rng.sample(range(keys), rng.randint(1, keys))
        if rng.random() < 0.5:
            ops.append(scan({key: state.get(key, 0) for key in chosen}, *span))
            continue
        tag += 1
        writes = dict.fromkeys(chosen, tag if rng.random() < 0.8 else 0)
        raised = rng.random() < 0.1
        ops.append(batch(writes, span[0], None if raised else span[1]))
        if not raised or rng.random() < 0.5:
            state |= writes
    return ops


@pytest.mark.parametrize("seed", range(200))
def test_what_a_dict_answers_is_accepted(seed):
    assert check(atomic_history(random.Random(seed)), {}).order is not None


def valid(order):
    """By the definition. If the start of an order is not valid, neither is the whole."""
    state = {}
    for number, each in enumerate(order):
        if any(later.responded < each.invoked for later in order[number + 1 :]):
            return False
        if any(state.get(key, 0) != tag for key, tag in each.reads):
            return False
        state |= each.writes
    return True


def some_order(ops, done=()):
    """Tries every order."""
    if not valid(done):
        return False
    rest = [each for each in ops if each not in done]
    return not rest or any(some_order(ops, (*done, each)) for each in rest)


@pytest.mark.parametrize("seed", range(300))
def test_the_verdict_is_that_of_trying_every_order(seed):
    """On histories of six operations, half of them with one answer changed."""
    rng = random.Random(seed)
    ops = [each for each in atomic_history(rng, 3, 12, 2) if each.responded][:6]
    reads = [each for each in ops if each.reads]
    if seed % 2 and reads:
        victim = rng.choice(reads)
        key, _ = victim.reads[0]
        victim.reads[0] = (key, rng.randrange(4))
    assert check(ops, {}).rejected != some_order(ops)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_survives_the_reduction(name):
    rng = random.Random(name)
    noise = [put(f"z{n}", 100 + n, *sorted(rng.sample(range(20), 2))) for n in range(10)]
    noise += [scan({f"z{n}": 100 + n}, 30, 31) for n in range(5)]
    ops, start = reduce([*noise, *WRONG[name]], {"z1": 99})
    assert check(ops, start).rejected
    assert len(ops) <= len(WRONG[name])


def test_a_call_that_raised_is_done_with_at_the_next_open():
    before = Round([put(A, 1, 0, None), scan({A: 0}, 2, 3)])
    late = Round([scan({A: 1}, 6, 7)])
    assert list(check_rounds([before, late])) == []
    reopened = Round([scan({A: 0}, 4, 5)], settled=True)
    assert len(list(check_rounds([before, reopened, late]))) == 1


def test_rounds_choose_again_which_call_raised_and_happened():
    """Either of two deletes explains the first round; only one of them may come in the second."""
    first = Round([
        put(A, 1, 0, 1), put(B, 2, 2, 3),
        op("delete_range", 4, None, writes={A: 0, B: 0}), op("delete", 5, None, writes={A: 0}),
        scan({A: 0, B: 2}, 8, 9),
    ])  # fmt: skip
    assert list(check_rounds([first, Round([scan({A: 0, B: 0}, 10, 11)])])) == []


def test_a_search_that_is_too_long_is_no_verdict():
    ops = [put(A, 1 + n, n, 100 + n) for n in range(12)] + [get(A, 99, 200, 201)]
    verdict = check(ops, {}, budget=50)
    assert verdict.order is None and not verdict.decided and not verdict.rejected
