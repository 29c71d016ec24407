"""Whatever changes or copies the bits of a `BlockedBloom` waits for their locks."""

import platform
import threading

import pytest
from waiting import wait_until

from lsmkv_ext.filter.bloom import BlockedBloom, hold_bits

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc tells who waits for a mutex")


def waits(bloom, call):
    """Whether the call, in another thread, waits for locks of the bits while this thread has them."""
    signals = bytearray(2)

    def run():
        wait_until(lambda: signals[0])
        try:
            call(bloom)
        finally:
            signals[1] = 1

    thread = threading.Thread(target=run)
    thread.start()
    waited = hold_bits(bloom, signals)
    thread.join()
    return waited


def add_column(bloom):
    bloom.add_many((b"adaada", memoryview(b"\0" * 8 + b"\3" + b"\0" * 7 + b"\6" + b"\0" * 7).cast("q")))


CHANGES = {
    "add": lambda bloom: bloom.add(b"ada"),
    "test_and_add": lambda bloom: bloom.test_and_add(b"ada"),
    "add_many, one key": lambda bloom: bloom.add_many([b"ada"]),
    "add_many": lambda bloom: bloom.add_many([b"%d" % i for i in range(10_000)]),
    "add_many of a column": add_column,
    "merge": lambda bloom: bloom.merge(BlockedBloom(bloom.capacity, bits_per_key=bloom.bits_per_key)),
    "clear": lambda bloom: bloom.clear(),
    "to_bytes": lambda bloom: bloom.to_bytes(),
}


@pytest.mark.parametrize("keys", [1, 10_000], ids=["one stripe", "many stripes"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_waits_for_the_lock(change, keys):
    assert waits(BlockedBloom(keys, bits_per_key=8), CHANGES[change])


@pytest.mark.parametrize("probe", [lambda bloom: b"ada" in bloom, lambda bloom: bloom.test_many([b"ada"])])
def test_a_probe_takes_no_lock(probe):
    assert not waits(BlockedBloom(1000), probe)
