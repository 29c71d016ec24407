"""Mistakes that mypy and pyright must find. Never run: a comment that is not needed is an error (`make types`)."""

from __future__ import annotations

import lsmkv

with lsmkv.open("people.db") as db:
    db.put("ada", b"1815")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    db[b"ada"] = 1815  # type: ignore[assignment]  # pyright: ignore[reportArgumentType]
    db.get(b"ada").decode()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    found: bytes = db.get(b"ada")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    db.set_options(wal="write")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    db.keyspace("users", memory=1 << 20)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    for key, _ in db.iterator(include_value=False):
        key.decode()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

lsmkv.open("people.db", write_bufer_size=1 << 20)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
lsmkv.open("people.db", compression="snappy")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
lsmkv.open("people.db", recovery=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
