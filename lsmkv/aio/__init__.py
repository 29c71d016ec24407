"""lsmkv for asyncio.

>>> import asyncio, lsmkv.aio
>>> async def main():
...     async with lsmkv.aio.open("people.db") as db:
...         await db.put(b"ada", b"1815")
...         return await db.get(b"ada")
>>> asyncio.run(main())
b'1815'

A call that need not wait returns without leaving the loop's thread: a get whose blocks are in memory, a put that the
log and the memtable have room for. Every other call runs in a thread of a bounded pool, which belongs to the database.
"""

from lsmkv.aio.database import DB, Keyspace, open
from lsmkv.aio.read import Cursor, Snapshot, ValueFile, View
from lsmkv.aio.transaction import Transaction
from lsmkv.aio.write_batch import WriteBatch

__all__ = ["DB", "Cursor", "Keyspace", "Snapshot", "Transaction", "ValueFile", "View", "WriteBatch", "open"]
