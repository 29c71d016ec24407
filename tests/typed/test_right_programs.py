"""Programs as users write them. mypy and pyright must accept them, with these types (`make types`); they run too."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import assert_type

import lsmkv
import lsmkv.aio
from lsmkv.prefixed import PrefixedDB


def test_a_missing_key_gives_none_or_the_default(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db") as db, db.snapshot() as before:
        assert_type(db, lsmkv.DB)
        for source in (db, before, db.keyspace("users")):
            assert_type(source.get(b"a"), bytes | None)
            assert_type(source.get(b"a", b""), bytes)
            assert_type(source.get(b"a", 0), bytes | int)
            assert_type(source.get(bytearray(b"a"), None, fill_cache=False), bytes | None)
            assert_type(source.get(b"a", b"", copy=False), bytes | memoryview)
            assert_type(source.multi_get([b"a"]), list[bytes | None])
            assert_type(source.multi_get([b"a"], b""), list[bytes])
            assert_type(source.ttl(b"a") if b"a" in source else None, float | None)
        assert_type(db.pop(b"a", None), bytes | None)
        assert_type(db.pop(b"a", b""), bytes)
        assert_type(db.setdefault(b"a", b"1"), bytes)
        assert_type(db.pop(b"a"), bytes)
        users = db.prefixed_db(b"user:")
        assert_type(users, PrefixedDB)
        assert_type(users.get(b"a"), bytes | None)
        assert_type(users.get(b"a", b""), bytes)
        assert_type(users.pop(b"a", b""), bytes)


def test_a_database_is_a_mapping_of_bytes(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db") as db:
        db[b"a"] = b"1"
        assert_type(db[b"a"], bytes)
        assert_type(len(db), int)
        assert_type(list(db), list[bytes])
        assert_type(dict(db), dict[bytes, bytes])
        assert_type(list(db.items(prefix=b"a")), list[tuple[bytes, bytes]])
        assert_type(list(reversed(db.keys())), list[bytes])
        for key, value in db.items(reverse=True):
            assert_type((key, value), tuple[bytes, bytes])
        assert b"a" in db
        del db[b"a"]


def test_what_an_iterator_gives_depends_on_its_arguments(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db") as db:
        db[b"a"] = b"1"
        assert_type(db.iterator().take(5), list[tuple[bytes, bytes]])
        assert_type(db.iterator(include_value=False).next(), bytes)
        assert_type(list(db.iterator(include_key=False)), list[bytes])
        with db.cursor() as cursor:
            assert_type(cursor.seek_to_first(), bool)
            assert_type(cursor.item(), tuple[bytes, bytes])


def test_writes_in_several_ways(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db") as db:
        users = db.keyspace("users", compression=[None, "lz4"], default_ttl=timedelta(days=1))
        with db.write_batch() as batch:
            batch.put(b"a", memoryview(b"1"), ttl=60)
            batch.put(b"a", b"2", keyspace=users)

        def move(tx: lsmkv.Transaction) -> int:
            assert_type(tx.get(b"a"), bytes | None)
            assert_type(tx.get(b"a", b"", keyspace=users), bytes)
            tx.put(b"b", tx[b"a"])
            return len(tx.get(b"a", b""))

        assert_type(db.transact(move), int)
        assert_type(db.add(b"n", 2), int)
        assert_type(db.modify(b"a", lambda old: (old or b"") + b"!"), bytes | None)


def test_options_in_several_ways(tmp_path: Path) -> None:
    small = lsmkv.Options(block_cache_size=1 << 20)
    with lsmkv.open(str(tmp_path / "db"), "n", options=small, bits_per_key="auto", wal="write", sync=True) as db:
        db.set_options(prefix_extractor=[4, 8], filter=["bloom", "fuse"], memory=None)
        db.keyspace("users").set_options(bits_per_key=[10, 8.5])
        assert_type(db.options.sync, bool)
    plain: dict[str, object] = {"sync": True}
    with lsmkv.open(tmp_path / "db", options=plain) as db:
        assert db.options.sync


def test_asyncio_knows_the_same_types(tmp_path: Path) -> None:
    async def main() -> None:
        async with lsmkv.aio.open(tmp_path / "db", compression=["lz4", "zstd"]) as db:
            assert_type(await db.get(b"a"), bytes | None)
            assert_type(await db.get(b"a", b""), bytes)
            assert_type(await db.multi_get([b"a"]), list[bytes | None])
            assert_type(await db.pop(b"a", None), bytes | None)
            await db.set_options(bits_per_key=12)
            async with db.transaction() as tx:
                assert_type(await tx.get(b"a", 0), bytes | int)
            async for key, value in db.items():
                assert_type((key, value), tuple[bytes, bytes])

    asyncio.run(main())


def keys_of(database: lsmkv.DB | lsmkv.Keyspace | lsmkv.Snapshot) -> Iterable[bytes]:
    return database.keys()


def test_a_function_takes_all_that_can_be_read(tmp_path: Path) -> None:
    with lsmkv.open(tmp_path / "db") as db, db.snapshot() as snapshot:
        assert [*keys_of(db), *keys_of(snapshot), *keys_of(db.keyspace("users"))] == []
