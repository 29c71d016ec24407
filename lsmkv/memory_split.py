"""How the option `memory` is split. A pure function: the options apply the result."""

from __future__ import annotations

from dataclasses import dataclass

from lsmkv.errors import OptionError

PAGE = 4096
# Larger write buffers make longer recoveries and no faster writes: what is left goes to the block cache.
LARGEST_BUFFER = 256 << 20


@dataclass(frozen=True)
class Split:
    write_buffer_size: int
    block_cache_size: int


def split(
    memory: int,
    max_write_buffers: int,
    write_buffer_size: int | None,
    block_cache_size: int | None,
    row_cache_size: int,
) -> Split:
    """Splits `memory` bytes. None for a size leaves it to the split; `row_cache_size` comes on top of the block cache.

    An eighth stays free for what the parts take beyond their size: buffers of compactions, blocks that were evicted
    while a reader uses them. One write buffer counts twice, because the block cache borrows it while it is idle, and
    scattered blocks give memory back late. Half of the rest is for write buffers, half for the block cache, which
    also holds the indexes and filters. Raises OptionError if the sizes that were given do not fit.
    """
    usable = memory - memory // 8
    buffers = max_write_buffers + 1
    least = PAGE * buffers if write_buffer_size is None else write_buffer_size * buffers
    taken = least + (block_cache_size or 0) + row_cache_size
    if taken > usable:
        raise OptionError(
            f"memory={memory} is too small for the other sizes: {buffers} (max_write_buffers + 1) write buffers, "
            f"block_cache_size and row_cache_size take {taken} bytes together, and {usable} are split"
        )
    if write_buffer_size is None:
        left = usable - row_cache_size - (block_cache_size or 0)
        share = left if block_cache_size is not None else min(memory // 2, left)
        write_buffer_size = min(max(share // buffers // PAGE * PAGE, PAGE), LARGEST_BUFFER)
    if block_cache_size is None:
        block_cache_size = usable - row_cache_size - write_buffer_size * buffers
    return Split(write_buffer_size, block_cache_size)
