"""lsmkv.aio: the calls of the ordinary interface, awaited."""

import asyncio
import inspect
import io
import os
import threading

import pytest

import lsmkv
import lsmkv.aio
from lsmkv_ext.nonblocking import WOULD_BLOCK, try_get


def run(path, test, **options):
    """Run the coroutine function `test` with an open database."""

    async def opened():
        async with lsmkv.aio.open(path, **options) as db:
            return await test(db)

    return asyncio.run(opened())


async def collected(view):
    return [item async for item in view]


# --- the interface ---------------------------------------------------------------------------------------------------

# `prefixed_db`, `background` and `recovery_report` stand in `db.database`.
ELSEWHERE = {"prefixed_db", "background", "recovery_report", "seed", "keyspace_id"}
PAIRS = [
    (lsmkv.aio.DB, lsmkv.DB),
    (lsmkv.aio.Keyspace, lsmkv.Keyspace),
    (lsmkv.aio.Snapshot, lsmkv.Snapshot),
    (lsmkv.aio.Transaction, lsmkv.Transaction),
    (lsmkv.aio.WriteBatch, lsmkv.WriteBatch),
    (lsmkv.aio.Cursor, lsmkv.Cursor),
]
UNSUITED = {
    lsmkv.Keyspace: {"update"},
    lsmkv.DB: {"update"},
    # A snapshot of the same moment, and what a transaction refuses.
    lsmkv.Transaction: {"prefixed_db", "cursor", "close", "iterator", "open_value", "keyspace"},
    lsmkv.WriteBatch: {"append"},
    lsmkv.Cursor: {"valid", "closed"},
}


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=lambda cls: cls.__module__ + "." + cls.__name__)
def test_every_call_has_its_counterpart(ours, theirs):
    names = {name for name in dir(theirs) if not name.startswith("_")}
    assert names - ELSEWHERE - UNSUITED.get(theirs, set()) <= set(dir(ours))


@pytest.mark.parametrize("cls", [cls for cls, _ in PAIRS], ids=lambda cls: cls.__name__)
def test_public_calls_have_a_docstring_and_a_signature(cls):
    for name, found in inspect.getmembers(cls):
        if not name.startswith("_"):
            assert inspect.getdoc(found), name
            if callable(found):
                assert inspect.signature(found)


# --- points ----------------------------------------------------------------------------------------------------------


def test_points(path):
    async def test(db):
        assert await db.get(b"ada") is None
        await db.put(b"ada", b"1815")
        await db.put(bytearray(b"bob"), memoryview(b"1900"))
        assert await db.get(memoryview(b"ada")) == b"1815"
        assert await db.get(b"eve", b"?") == b"?"
        assert await db.contains(b"ada") and not await db.contains(b"eve")
        assert await db.multi_get([b"bob", b"eve", b"ada"], 0) == [b"1900", 0, b"1815"]
        assert await db.multi_get([b"bob"] * 100) == [b"1900"] * 100
        await db.delete(b"ada")
        assert await db.get(b"ada") is None
        await db.delete_range(b"a", b"c")
        assert await collected(db) == []

    run(path, test)


def test_reads_from_tables(path):
    async def test(db):
        for i in range(1000):
            await db.put(b"%04d" % i, b"%d" % i * 20)
        await db.flush()
        assert db.database.tables()
        for i in range(1000):
            assert await db.get(b"%04d" % i) == b"%d" % i * 20
        assert await db.get(b"0500x") is None
        assert await db.multi_get([b"0001", b"0999", b"none"]) == [b"1" * 20, b"999" * 20, None]

    run(path, test)


def test_updates(path):
    async def test(db):
        assert await db.add(b"n", 2) == 2
        assert await db.max(b"n", 7) == 7
        assert await db.min(b"n", 5) == 5
        assert await db.append(b"s", b"abc") == 3
        assert await db.compare_and_set(b"s", b"abc", b"d")
        assert await db.modify(b"s", lambda old: old + b"!") == b"d!"
        assert await db.setdefault(b"t", b"x") == b"x"
        assert await db.pop(b"t") == b"x"
        assert await db.pop(b"t", 9) == 9
        assert await db.popitem() == (b"n", (5).to_bytes(8, "little"))
        await db.clear()
        assert await db.keys().count() == 0

    run(path, test)


def test_expiry(path):
    async def test(db):
        await db.put(b"ada", b"token", ttl=60)
        assert 0 < await db.ttl(b"ada") <= 60
        assert await db.touch(b"ada", 600)
        assert await db.ttl(b"ada") > 60
        with pytest.raises(TypeError):
            await db.put(b"ada", b"token", ttl=60, expire_at=5)
        assert await db.ttl(b"ada") > 60

    run(path, test)


def test_values_in_value_logs(path):
    async def test(db):
        short, large = os.urandom(20_000), os.urandom(300_000)
        await db.put(b"short", short)
        await db.put(b"large", io.BytesIO(large), length=len(large))
        assert await db.get(b"short") == short
        assert await db.get(b"large") == large
        assert await db.contains(b"large")
        assert await db.get(b"large", copy=False) == large
        async with await db.open_value(b"large") as file:
            assert await file.seek(100) == 100
            assert await file.read(50) == large[100:150]

    run(path, test)


def test_errors_come_through(path):
    async def test(db):
        with pytest.raises(TypeError):
            await db.get("ada")
        with pytest.raises(ValueError, match="65535"):
            await db.put(b"x" * 70_000, b"")
        with pytest.raises(KeyError):
            await db.pop(b"none")
        with pytest.raises(lsmkv.OptionError):
            await db.set_options(nonsense=1)

    run(path, test)


# --- ranges ----------------------------------------------------------------------------------------------------------


def test_ranges(path):
    async def test(db):
        items = [(b"%05d" % i, b"v%d" % i) for i in range(3000)]
        async with db.write_batch() as batch:
            for item in items:
                batch.put(*item)
            assert len(batch) == 3000 and batch.size_bytes
        assert await collected(db.items()) == items
        assert await collected(db.keys(b"00010", b"00013")) == [b"00010", b"00011", b"00012"]
        assert await collected(db.values(prefix=b"0001", reverse=True)) == [b"v%d" % i for i in range(19, 9, -1)]
        assert await collected(db) == [key for key, _ in items]
        assert await db.items(b"00100", b"00200").count() == 100
        assert await db.values(b"00100", b"00200").count() == 100
        view = db.keys(b"00000", b"00002")
        assert await collected(view) == await collected(view)

    run(path, test)


def test_a_cancelled_step_loses_no_item(path):
    async def test(db):
        for i in range(200):
            await db.put(b"%03d" % i, b"")
        scan = aiter(db.keys())
        entered, leave = threading.Event(), threading.Event()
        fetch = scan._fetch

        def held():
            entered.set()
            leave.wait()
            fetch()

        scan._fetch = held
        step = asyncio.create_task(anext(scan))
        while not entered.is_set():
            await asyncio.sleep(0)
        step.cancel()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert await collected(scan) == [b"%03d" % i for i in range(200)]

    run(path, test)


def test_a_scan_can_be_closed(path):
    async def test(db):
        await db.put(b"ada", b"")
        await db.put(b"bob", b"")
        scan = aiter(db)
        assert await anext(scan) == b"ada"
        await scan.aclose()
        assert await collected(scan) == []

    run(path, test)


def test_cursor(path):
    async def test(db):
        for key in (b"a", b"b", b"c"):
            await db.put(key, key * 2)
        async with db.cursor(start=b"b") as cursor:
            assert await cursor.seek_to_first()
            assert await cursor.item() == (b"b", b"bb")
            assert await cursor.next()
            assert (await cursor.key(), await cursor.value()) == (b"c", b"cc")
            assert await cursor.prev() and await cursor.key() == b"b"
            assert not await cursor.seek(b"d")
            assert await cursor.seek_for_prev(b"d") and await cursor.seek_to_last()

    run(path, test)


# --- states and keyspaces --------------------------------------------------------------------------------------------


def test_snapshot(path):
    async def test(db):
        await db.put(b"ada", b"1")
        users = await db.keyspace("users")
        async with db.snapshot() as before:
            await db.put(b"ada", b"2")
            await users.put(b"bob", b"3")
            assert await before.get(b"ada") == b"1"
            assert await collected(before.items()) == [(b"ada", b"1")]
            assert await before.keyspace(users).get(b"bob") is None
        assert before.closed
        with pytest.raises(lsmkv.ClosedError):
            await before.get(b"ada")

    run(path, test)


def test_keyspaces(path):
    async def test(db):
        users = await db.keyspace("users", bits_per_key=12)
        await users.put(b"ada", b"1815")
        async with db.write_batch() as batch:
            batch.put(b"n", b"1")
            batch.delete(b"ada", keyspace=users)
        assert await collected(users) == []
        async with users.write_batch(sync=True) as batch:
            batch.put(b"bob", b"")
            batch.delete_range(b"x", b"y")
        await users.delete_range(b"c", b"d")
        assert await collected(users) == [b"bob"] and await collected(db) == [b"n"]
        assert await db.keyspaces() == ["users"] == [users.name]
        await users.set_options(bits_per_key=9)
        assert users.options.bits_per_key == 9.0
        await db.drop_keyspace("users")
        with pytest.raises(lsmkv.KeyspaceError):
            await users.get(b"bob")
        with pytest.raises(lsmkv.KeyspaceError):
            await users.put(b"bob", b"")

    run(path, test)


def test_a_batch_of_a_block_that_raises_is_not_written(path):
    async def test(db):
        with pytest.raises(ZeroDivisionError):
            async with db.write_batch() as batch:
                batch.put(b"ada", b"")
                raise ZeroDivisionError
        async with db.write_batch(transaction=False) as batch:
            batch.put(b"bob", b"")
        assert await collected(db) == [b"bob"]

    run(path, test)


def test_a_batch_of_another_database_is_refused(path, tmp_path):
    async def test(db):
        with lsmkv.open(tmp_path / "other") as other:
            batch = other.write_batch()
            batch.put(b"ada", b"", keyspace=other.keyspace("users"))
            with pytest.raises(ValueError, match="another database"):
                await db.write(batch)

    run(path, test)


# --- transactions ----------------------------------------------------------------------------------------------------


def test_transaction(path):
    async def test(db):
        await db.put(b"ada", b"10")
        users = await db.keyspace("users")
        async with db.transaction() as tx:
            assert await tx.get(b"ada") == b"10"
            assert await tx.multi_get([b"ada", b"bob"]) == [b"10", None]
            await tx.put(b"bob", b"5", ttl=60)
            await tx.put(b"eve", b"", keyspace=users)
            await tx.delete(b"ada")
            await tx.delete_range(b"x", b"y")
            assert await tx.contains(b"bob") and await tx.ttl(b"bob") > 0
            assert await collected(tx.items()) == [(b"bob", b"5")]
            assert await collected(tx) == [b"bob"] and await collected(tx.values()) == [b"5"]
            assert await tx.get(b"eve", keyspace=users) == b""
        assert tx.closed and tx.committed
        assert await collected(db) == [b"bob"] and await collected(users) == [b"eve"]

    run(path, test)


def test_a_transaction_conflicts(path):
    async def test(db):
        with pytest.raises(lsmkv.ConflictError):
            async with db.transaction() as tx:
                await tx.get(b"ada")
                await db.put(b"ada", b"2")
                await tx.put(b"bob", b"1")
        assert await db.get(b"bob") is None

    run(path, test)


def test_transact_runs_again_after_a_conflict(path):
    async def test(db):
        async def increment(tx):
            n = int(await tx.get(b"n", b"0"))
            await asyncio.sleep(0)
            await tx.put(b"n", b"%d" % (n + 1))

        await asyncio.gather(*(db.transact(increment) for _ in range(20)))
        assert await db.get(b"n") == b"20"

    run(path, test)


def test_a_cancelled_block_rolls_back(path):
    async def test(db):
        begun = asyncio.Event()

        async def block():
            async with db.transaction() as tx:
                await tx.put(b"ada", b"")
                begun.set()
                await asyncio.sleep(3600)

        task = asyncio.create_task(block())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await collected(db) == []

    run(path, test)


def test_a_commit_that_is_cancelled_before_it_begins_ends_the_transaction(path):
    """Or it would pin memtables as long as somebody holds it."""
    leave = threading.Event()

    async def block(tx):
        async with tx:
            await tx.put(b"ada", b"")

    async def test():
        async with lsmkv.aio.open(path, threads=1) as db:
            busy = asyncio.create_task(db.modify(b"bob", lambda old: leave.wait() and b"1"))
            await asyncio.sleep(0)
            tx = db.transaction()
            task = asyncio.create_task(block(tx))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            leave.set()
            await busy
            with pytest.raises(asyncio.CancelledError):
                await task
            assert tx.closed
            assert await collected(db) == [b"bob"]

    asyncio.run(test())


# --- maintenance -----------------------------------------------------------------------------------------------------


def test_maintenance(path, tmp_path):
    async def test(db):
        with lsmkv.SSTWriter(tmp_path / "x.sst", seed=db.database.seed) as writer:
            writer.put(b"x", b"1")
        await db.ingest([tmp_path / "x.sst"])
        for i in range(100):
            await db.put(b"%03d" % i, b"v")
        await db.sync()
        await db.flush()
        steps = []
        await db.compact_range(progress=lambda done, total: steps.append((done, total, threading.current_thread())))
        await asyncio.sleep(0)  # the last report was sent before the call returned
        assert steps and {step[2] for step in steps} == {threading.current_thread()}
        assert await db.approximate_len() == 101
        assert await db.approximate_size() > 0
        assert await db.split_points(1) == []
        assert str(len(await db.tables())) == await db.property("lsmkv.num-files")
        assert (await db.stats()).writes.puts == 100
        await db.reset_stats()
        assert (await db.stats()).writes.puts == 0
        assert (await db.explain(b"x")).found
        assert await db.filter_debt() == {} and await db.rebuild_filters() == 0
        await db.set_options(bits_per_key=12)
        assert db.options.bits_per_key == 12.0
        await db.checkpoint(tmp_path / "copy")
        async with lsmkv.aio.open(tmp_path / "copy", "r") as copy:
            assert copy.readonly and await copy.get(b"x") == b"1"
            await copy.refresh()
            await copy.refresh_every(3600)

    run(path, test)


def test_reads_count_once(path):
    async def test(db):
        for i in range(100):
            await db.put(b"%03d" % i, b"v")
        await db.flush()
        await db.reset_stats()
        for i in range(100):
            await db.get(b"%03d" % i)
        await db.multi_get([b"%03d" % i for i in range(10)])
        async with db.transaction() as tx:
            await tx.get(b"000")
        reads = (await db.stats()).reads
        assert (reads.gets, reads.found) == (111, 111)

    run(path, test)


def test_what_need_not_wait_takes_no_thread(path):
    async def test(db):
        await db.put(b"ada", b"1815")
        await db.flush()
        await db.get(b"ada")
        await db.put(b"bob", b"")  # the first one in a log allocates room for more
        db._pool.submit = None  # a thread would raise
        assert await db.get(b"ada") == b"1815"
        assert await db.get(b"eve") is None
        assert await db.multi_get([b"ada"]) == [b"1815"]
        await db.put(b"bob", b"")
        await db.delete(b"bob")
        async with db.write_batch() as batch:
            batch.put(b"eve", b"")
        del db._pool.submit

    run(path, test)


def test_a_task_that_never_waits_lets_others_run(path):
    async def test(db):
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await db.put(b"ada", b"")
        before = turns
        for _ in range(320):
            await db.get(b"ada")
        assert turns - before >= 10
        task.cancel()

    run(path, test)


def test_reads_that_may_wait_take_a_thread(path):
    async def test(db):
        for i in range(1000):
            await db.put(b"%04d" % i, os.urandom(100))
        await db.flush()
        await db.reset_stats()
        assert try_get(db.database, b"0700") is WOULD_BLOCK
        assert len(await db.get(b"0700")) == 100
        assert len((await db.multi_get([b"0100", b"none"]))[0]) == 100
        assert await db.contains(b"0400")
        async with db.transaction() as tx:
            assert len(await tx.get(b"0999")) == 100
        reads = (await db.stats()).reads
        assert (reads.gets, reads.found) == (5, 4)

    # Blocks of this size are never read in the loop's thread.
    run(path, test, block_size=32 << 10, compression=None)


# --- opening, closing, cancelling ------------------------------------------------------------------------------------


def test_open_can_be_awaited(path):
    async def test():
        db = await lsmkv.aio.open(path, threads=1)
        await db.put(b"ada", b"")
        assert repr(db) == f"<lsmkv.aio.DB '{path}'>"
        await db.close()
        await db.close()
        assert db.closed and "(closed)" in repr(db)
        for call in (db.get(b"ada"), db.put(b"ada", b""), db.flush(), db.ttl(b"ada"), anext(aiter(db))):
            with pytest.raises(lsmkv.ClosedError):
                await call

    asyncio.run(test())


def test_a_failed_open_raises_and_leaves_no_thread(path):
    async def test():
        with pytest.raises(lsmkv.IOError):
            async with lsmkv.aio.open(path, "r"):
                raise AssertionError("it opened")

    asyncio.run(test())
    for thread in threading.enumerate():
        if thread.name.startswith("lsmkv-aio"):
            thread.join(30)
            assert not thread.is_alive()


def test_the_threads_end_with_the_database(path):
    async def test(db):
        await db.flush()
        return {thread for thread in threading.enumerate() if thread.name.startswith("lsmkv-aio")}

    threads = run(path, test)
    assert threads
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_cancelled_open_closes_the_database(path, monkeypatch):
    entered, leave = threading.Event(), threading.Event()
    really = lsmkv.open

    def slow(*args, **kwargs):
        entered.set()
        leave.wait()
        return really(*args, **kwargs)

    monkeypatch.setattr(lsmkv, "open", slow)

    async def test():
        opening = asyncio.ensure_future(lsmkv.aio.open(path)._open())
        while not entered.is_set():
            await asyncio.sleep(0)
        opening.cancel()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        monkeypatch.undo()
        async with lsmkv.aio.open(path) as db:  # the lock is free
            await db.put(b"ada", b"")

    asyncio.run(test())


def test_a_cancelled_call_completes(path):
    """A write that has begun is not taken back, and closing waits for it."""
    entered, leave = threading.Event(), threading.Event()

    def slow(old):
        entered.set()
        leave.wait()
        return b"done"

    async def test(db):
        call = asyncio.create_task(db.modify(b"ada", slow))
        while not entered.is_set():
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        closing = asyncio.create_task(db.close())
        await asyncio.sleep(0)
        with pytest.raises(lsmkv.ClosedError):
            await db.flush()
        leave.set()
        await closing

    run(path, test)
    with lsmkv.open(path) as db:
        assert db[b"ada"] == b"done"


def test_a_cancelled_call_that_has_not_begun_never_runs(path):
    entered, leave = threading.Event(), threading.Event()

    def slow(old):
        entered.set()
        leave.wait()
        return b"slow"

    async def test(db):
        first = asyncio.create_task(db.modify(b"ada", slow))
        while not entered.is_set():
            await asyncio.sleep(0)
        second = asyncio.create_task(db.modify(b"bob", lambda old: b"never"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        leave.set()
        await first
        assert await collected(db) == [b"ada"]

    async def one_thread():
        async with lsmkv.aio.open(path, threads=1) as db:
            await test(db)

    asyncio.run(one_thread())


def test_a_cancelled_close_goes_on(path):
    entered, leave = threading.Event(), threading.Event()

    def slow(old):
        entered.set()
        leave.wait()
        return b"done"

    async def test():
        db = await lsmkv.aio.open(path)
        call = asyncio.create_task(db.modify(b"ada", slow))
        while not entered.is_set():
            await asyncio.sleep(0)
        closing = asyncio.create_task(db.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        leave.set()
        assert await call == b"done"
        await db.close()
        assert db.closed

    asyncio.run(test())


def test_a_database_that_is_closed_underneath(path):
    async def test(db):
        db.database.close()
        with pytest.raises(lsmkv.ClosedError):
            await db.get(b"ada")
        with pytest.raises(lsmkv.ClosedError):
            await db.flush()

    run(path, test)


def test_a_forked_child_is_refused(path):
    async def test(db):
        await db.flush()  # a thread is there
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.events._set_running_loop(None)
                code = asyncio.new_event_loop().run_until_complete(refused(db))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await db.put(b"ada", b"")

    async def refused(db):
        calls = (db.get(b"a"), db.put(b"a", b""), db.flush(), db.ttl(b"a"), anext(aiter(db)))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await db.close()
        return 0 if all(isinstance(outcome, lsmkv.ForkError) for outcome in outcomes) else 2

    run(path, test)


def test_several_loops_share_a_database(path):
    db = asyncio.run(lsmkv.aio.open(path)._open())

    def work(number):
        async def puts():
            for i in range(500):
                await db.put(b"%d-%03d" % (number, i), b"")
            await db.flush()

        asyncio.run(puts())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def last():
        assert await db.keys().count() == 1500
        await db.close()

    asyncio.run(last())


def test_many_tasks_while_memtables_rotate(path):
    async def test(db):
        async def work(number):
            for i in range(300):
                key = b"%02d-%04d" % (number, i)
                await db.put(key, key * 20)
                assert await db.get(key) == key * 20
            async with db.write_batch() as batch:
                batch.put(b"%02d-end" % number, b"x" * 70_000)

        await asyncio.gather(*(work(number) for number in range(20)))
        assert await db.keys().count() == 20 * 301
        assert db.database.background.flushes

    run(path, test, write_buffer_size=64 << 10)


@pytest.mark.parametrize("options", [{"wal": None}, {"wal": "write"}, {"sync": True}])
def test_other_logs(path, options):
    async def test(db):
        await db.put(b"ada", b"1")
        await db.delete(b"bob")
        async with db.write_batch() as batch:
            batch.put(b"eve", b"2")
        assert await collected(db.items()) == [(b"ada", b"1"), (b"eve", b"2")]

    run(path, test, **options)
    with lsmkv.open(path, **options) as db:
        assert dict(db) == {b"ada": b"1", b"eve": b"2"}


def test_a_default_ttl_holds(path):
    clock = lsmkv.ManualClock()

    async def test(db):
        await db.put(b"ada", b"1")
        async with db.write_batch() as batch:
            batch.put(b"bob", b"2")
        clock.advance(100)
        assert await db.get(b"ada") is None and await db.get(b"bob") is None

    run(path, test, clock=clock, default_ttl=60)


def test_columns(path):
    pyarrow = pytest.importorskip("pyarrow")

    async def main():
        async with lsmkv.aio.open(path) as db:
            assert await db.put_many([b"ada", b"bob"], [b"1815", b"1900"]) == 2
            scan = await db.scan_arrow(columns=["value"])
            assert (await asyncio.to_thread(pyarrow.table, scan))["value"].to_pylist() == [b"1815", b"1900"]
            found = await db.multi_get_arrow([b"ada", b"eve"])
            assert pyarrow.array(found).to_pylist() == [b"1815", None]
            assert await db.write_arrow(pyarrow.table({"key": [b"eve"], "value": [b"1950"]})) == 1
            assert await db.get(b"eve") == b"1950"

    asyncio.run(main())
