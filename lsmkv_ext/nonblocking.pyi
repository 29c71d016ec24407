from datetime import datetime, timedelta
from typing import Any, Final

from lsmkv_ext.batch import WriteBatch
from lsmkv_ext.reader import Reader
from lsmkv_ext.store import Store

class WouldBlock: ...

WOULD_BLOCK: Final[WouldBlock]

def try_get(reader: Reader, key: bytes, default: Any = None) -> Any: ...
def reads_at_once(reader: Reader, key: bytes) -> bool: ...
def try_multi_get(reader: Reader, keys: list[bytes], default: Any = None) -> list[Any] | WouldBlock: ...
def try_put(
    store: Store,
    key: bytes,
    value: bytes,
    *,
    sync: bool | None = None,
    ttl: float | timedelta | None = None,
    expire_at: float | datetime | None = None,
) -> bool: ...
def try_delete(store: Store, key: bytes, *, sync: bool | None = None) -> bool: ...
def try_write(store: Store, batch: WriteBatch, *, sync: bool | None = None) -> bool: ...
