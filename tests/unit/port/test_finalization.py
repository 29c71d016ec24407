"""Locks that stay sound without memory."""

import pytest

from lsmkv_ext.port.finalization import RLock


def test_a_wait_that_failed_after_it_released_the_lock_raises_its_own_error():
    """CPython's `Condition.wait` releases an RLock before it allocates what it needs to take it again."""
    lock = RLock()
    with pytest.raises(MemoryError), lock:
        lock.release()
        raise MemoryError


def test_a_lock_that_is_not_held_cannot_be_left():
    lock = RLock()
    with pytest.raises(RuntimeError), lock:
        lock.release()
