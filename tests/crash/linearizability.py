"""Is there one order of concurrent operations that explains all of their answers?

An operation reads and writes any number of keys at one moment between its invocation and its response. A put, a get, a
batch, a range delete, a scan, a snapshot and a transaction are all of this shape, so the check covers single keys and
the atomicity of operations on several of them. Every write has a tag of its own; 0 is an absent key.

The search is Wing and Gong's with Lowe's memory of visited configurations, and two shortcuts that unique tags allow:
a read that matches the state is taken at once, because it changes nothing, and a write never covers a tag that an
operation has still to read, because that tag cannot come back.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Key = Hashable
Tag = int
ABSENT: Tag = 0
BUDGET = 200_000


@dataclass(slots=True)
class Op:
    """`responded` is None if the call raised: it may have happened at any time since its invocation, or never."""

    name: str
    thread: int
    invoked: int
    responded: int | None = None
    # Pairs, not a mapping: two reads of one snapshot may disagree, which no state explains.
    reads: list[tuple[Key, Tag]] = field(default_factory=list)
    writes: dict[Key, Tag] = field(default_factory=dict)

    def __str__(self) -> str:
        end = "never" if self.responded is None else self.responded
        parts = [f"{key}={tag or 'absent'}" for key, tag in self.reads]
        parts += [f"{key}:={tag or 'absent'}" for key, tag in self.writes.items()]
        return f"[{self.invoked}, {end}] thread {self.thread} {self.name} {' '.join(parts)}"


class Verdict(NamedTuple):
    """`order` if there is one. Without an order and `decided`, no order exists; `stuck` cannot be placed."""

    order: list[Op] | None
    decided: bool
    stuck: list[Op]

    @property
    def rejected(self) -> bool:
        return self.order is None and self.decided


class _Node(NamedTuple):
    placed: int  # a bit for each operation
    state: tuple[Tag, ...]
    path: tuple | None  # the operations placed so far: (number, path)


class _Search:
    def __init__(self, ops: Iterable[Op], start: Mapping[Key, Tag]) -> None:
        ops = list(ops)
        required = sorted((op for op in ops if op.responded is not None), key=lambda op: op.invoked)
        optional = [op for op in ops if op.responded is None and op.writes]
        self.ops = required + optional
        self.required = len(required)
        self._all = (1 << len(required)) - 1
        keys = sorted({*start, *(key for op in ops for key, _ in op.reads), *(key for op in ops for key in op.writes)})
        self._place = place = {key: index for index, key in enumerate(keys)}
        self.start = tuple(start.get(key, ABSENT) for key in keys)
        self._reads = [sorted({(place[key], tag) for key, tag in op.reads}) for op in self.ops]
        self._writes = [[(place[key], tag) for key, tag in op.writes.items()] for op in self.ops]
        self._readers: dict[tuple[int, Tag], int] = {}
        for number in range(self.required):
            for pair in self._reads[number]:
                self._readers[pair] = self._readers.get(pair, 0) | 1 << number

    def run(self, budget: int) -> Verdict:
        seen: set[tuple[int, tuple[Tag, ...]]] = set()
        node = self._absorb(_Node(0, self.start, None))
        stack = [(node, self._steps(node))]
        furthest = node
        while stack:
            node, steps = stack[-1]
            if node.placed & self._all == self._all:
                return Verdict(self._order(node), True, [])
            following = next(steps, None)
            if following is None:
                stack.pop()
                continue
            following = self._absorb(following)
            if (following.placed, following.state) in seen:
                continue
            seen.add((following.placed, following.state))
            if len(seen) > budget:
                return Verdict(None, False, self._candidates_of(furthest))
            if following.placed.bit_count() > furthest.placed.bit_count():
                furthest = following
            stack.append((following, self._steps(following)))
        return Verdict(None, True, self._candidates_of(furthest))

    def _candidates(self, placed: int) -> Iterator[int]:
        """Operations that no other one, not yet placed, has ended before."""
        limit: float = float("inf")
        number = (~placed & (placed + 1)).bit_length() - 1
        while number < self.required:
            if not placed >> number & 1:
                op = self.ops[number]
                if op.invoked > limit:
                    return
                limit = min(limit, op.responded or limit)
                yield number
            number += 1

    def _candidates_of(self, node: _Node) -> list[Op]:
        return [self.ops[number] for number in self._candidates(node.placed)]

    def _matches(self, number: int, state: Sequence[Tag]) -> bool:
        return all(state[place] == tag for place, tag in self._reads[number])

    def _absorb(self, node: _Node) -> _Node:
        """Takes all reads that match; each may let further ones begin."""
        placed, state, path = node
        more = True
        while more:
            more = False
            for number in self._candidates(placed):
                if not self._writes[number] and self._matches(number, state):
                    placed |= 1 << number
                    path = (number, path)
                    more = True
        return _Node(placed, state, path)

    def _steps(self, node: _Node) -> Iterator[_Node]:
        """Every write that can come next. Those that raised come last, because most of them did nothing."""
        placed, state, path = node
        numbers = [number for number in self._candidates(placed) if self._writes[number]]
        for number in (*numbers, *self._optional(placed)):
            if self._matches(number, state) and not self._covers_needed(number, placed, state):
                after = list(state)
                for at, tag in self._writes[number]:
                    after[at] = tag
                yield _Node(placed | 1 << number, tuple(after), (number, path))

    def _optional(self, placed: int) -> Iterator[int]:
        first_end = min((self.ops[n].responded or 0 for n in self._candidates(placed)), default=0)
        for number in range(self.required, len(self.ops)):
            if not placed >> number & 1 and self.ops[number].invoked < first_end:
                yield number

    def _covers_needed(self, number: int, placed: int, state: Sequence[Tag]) -> bool:
        waiting = ~(placed | 1 << number)
        return any(
            state[at] not in (tag, ABSENT) and self._readers.get((at, state[at]), 0) & waiting
            for at, tag in self._writes[number]
        )

    def _order(self, node: _Node) -> list[Op]:
        order, path = [], node.path
        while path is not None:
            number, path = path
            order.append(self.ops[number])
        return order[::-1]


def check(ops: Iterable[Op], start: Mapping[Key, Tag], budget: int = BUDGET) -> Verdict:
    """Looks for an order of `ops` from the state `start` on; gives up after `budget` configurations."""
    return _Search(ops, start).run(budget)


# Whole histories ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Round:
    """Operations that overlap no operation of another round. The last one reads every key. After a reopen
    (`settled`) an operation that raised before can no longer happen.
    """

    ops: list[Op] = field(default_factory=list)
    settled: bool = False

    @property
    def end(self) -> dict[Key, Tag]:
        return dict(self.ops[-1].reads)


class Problem(NamedTuple):
    ops: list[Op]
    start: dict[Key, Tag]
    verdict: Verdict


def check_rounds(rounds: Iterable[Round], budget: int = BUDGET) -> Iterator[Problem]:
    """Checks the rounds one by one, each from the state that the one before it ended with."""
    start: dict[Key, Tag] = {}
    raised: list[Op] = []  # and may still happen
    joined: list[Op] = []  # all operations since the first of them, from the state `joined_start`
    joined_start = start
    for this in rounds:
        verdict = check([*raised, *this.ops], start, budget)
        joined += this.ops
        if verdict.order is None and raised:
            # Perhaps another order of the rounds before leaves another choice of operations that raised.
            verdict = check(joined, joined_start, budget)
        if verdict.order is None:
            yield Problem(joined, joined_start, verdict)
        placed = {id(op) for op in verdict.order or ()}
        raised = [op for op in (*raised, *this.ops) if op.responded is None and op.writes and id(op) not in placed]
        start = this.end
        if this.settled or not raised:
            raised, joined, joined_start = [], [], start


# Reduction ---------------------------------------------------------------------------------------------------


def reduce(ops: Iterable[Op], start: Mapping[Key, Tag], budget: int = BUDGET) -> tuple[list[Op], dict[Key, Tag]]:
    """A smaller history without an order. Every step keeps an order if there is one: it leaves out all of a key, a
    read, or a write that nobody reads. So what is left shows a fault of the whole history.
    """
    ops, start = [replace(op, reads=list(op.reads), writes=dict(op.writes)) for op in ops], dict(start)

    def rejected(smaller: list[Op]) -> bool:
        return check(smaller, start, budget).rejected

    keys = sorted({*start, *(key for op in ops for key, _ in op.reads), *(key for op in ops for key in op.writes)})
    for key in keys:
        ops = _keep(ops, _without_key(ops, key), rejected)
    for index in range(len(ops)):
        for pair in list(ops[index].reads):
            ops = _keep(ops, _without_read(ops, index, pair), rejected)
    ops = _keep(ops, _without_unread_writes(ops), rejected)
    used = {key for op in ops for key, _ in op.reads}
    ops = [op for op in ops if op.reads or op.writes]
    return ops, {key: tag for key, tag in start.items() if key in used}


def _keep(ops: list[Op], smaller: list[Op], rejected: Callable[[list[Op]], bool]) -> list[Op]:
    return smaller if rejected(smaller) else ops


def _without_key(ops: Iterable[Op], key: Key) -> list[Op]:
    return [
        replace(
            op,
            reads=[pair for pair in op.reads if pair[0] != key],
            writes={other: tag for other, tag in op.writes.items() if other != key},
        )
        for op in ops
    ]


def _without_read(ops: Sequence[Op], index: int, pair: tuple[Key, Tag]) -> list[Op]:
    changed = replace(ops[index], reads=[other for other in ops[index].reads if other != pair])
    return [*ops[:index], changed, *ops[index + 1 :]]


def _without_unread_writes(ops: Iterable[Op]) -> list[Op]:
    ops = list(ops)
    read = {pair for op in ops for pair in op.reads}
    return [replace(op, writes={key: tag for key, tag in op.writes.items() if (key, tag) in read}) for op in ops]


def describe(problem: Problem) -> str:
    """The problem in words, reduced."""
    what = "no order explains" if problem.verdict.decided else "no order found in time for"
    ops, start = reduce(problem.ops, problem.start) if problem.verdict.decided else (problem.ops, problem.start)
    lines = [f"{what} these {len(ops)} of {len(problem.ops)} operations, from {start or 'nothing'}:"]
    return "\n  ".join(lines + [str(op) for op in sorted(ops, key=lambda op: op.invoked)])
