"""Records like those of applications: JSON objects with the same fields."""

from __future__ import annotations

import random

PIECE = 200
COUNT = 20_000
# fmt: off
FIRST = (
    "Ada", "Alan", "Barbara", "Claude", "Donald", "Edsger", "Frances", "Grace", "Hedy", "Ivan", "John", "Katherine",
    "Leslie", "Margaret", "Niklaus",
)
LAST = (
    "Allen", "Backus", "Codd", "Dijkstra", "Floyd", "Goldberg", "Hamilton", "Hopper", "Kay", "Knuth", "Lamport",
    "Liskov", "Perlis", "Ritchie", "Wirth",
)
CITIES = (
    "Berlin", "Bogota", "Cairo", "Delhi", "Hanoi", "Kyoto", "Lagos", "Lima", "Lisbon", "Nairobi", "Oslo", "Porto",
    "Quito", "Rome", "Sydney", "Turin",
)
PLANS = ("free", "basic", "team", "enterprise")
WORDS = (
    "the", "order", "was", "sent", "and", "paid", "on", "time", "but", "one", "item", "is", "late", "again", "so",
    "call", "before", "noon", "or", "write", "to", "us",
)
# fmt: on


def json_record(rng: random.Random) -> str:
    """Return an object of PIECE bytes."""
    first, last = rng.choice(FIRST), rng.choice(LAST)
    head = (
        f'{{"id":{rng.randrange(10**9)},"name":"{first} {last}","email":"{first.lower()}.{last.lower()}'
        f'{rng.randrange(1000)}@example.org","city":"{rng.choice(CITIES)}","plan":"{rng.choice(PLANS)}",'
        f'"visits":{rng.randrange(5000)},"created":"2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}","note":"'
    )
    note = ""
    while len(head) + len(note) + 2 < PIECE:
        note += rng.choice(WORDS) + " "
    return head + note[: PIECE - len(head) - 2] + '"}'


def json_pool(seed: int, longest: int) -> bytes:
    """Return COUNT records, and `longest` bytes more. A value starts at a record."""
    rng = random.Random(seed)
    count = COUNT + -(-longest // PIECE)
    return "".join(json_record(rng) for _ in range(count)).encode()
