"""All jobs of the lab by name. Each runs in a process of its own, under iofault."""

from lsmkv.version import version_set
from lsmkv_ext import large_write
from lsmkv_ext.values import writer as value_writer

from .allocations import fail_allocation
from .damage import sweep as damage_sweep
from .failing import fsync_failure, fsync_failure_in_compact_range, open_with_fault, write_with_fault
from .full_disk import check_after_kill, fill_until_killed, own_full_disk
from .histories import history
from .lifetime import (
    close_during_first_order,
    close_during_rotation,
    close_race,
    fork_use,
    full_disk,
    many_tables,
    open_and_close,
)
from .many_databases import beside_a_bad_disk, many_databases
from .memory_limits import check_written, write_within
from .randomized import repair_copy, session, settle_session
from .recording import record, record_unflushed, replay
from .reentrancy import reenter
from .writing import (
    calls_of_puts,
    check,
    flush_and_die,
    open_until_killed,
    puts_during_a_sync,
    syncs_of_sessions,
    write_until_killed,
    write_until_power_cut,
)

# Small, so that crashes and failures meet manifests that are started anew in the middle of things.
version_set.MANIFEST_LIMIT = 2000
version_set.MANIFEST_GROWTH = 2
large_write.set_shortest_stream(64)
value_writer.set_least_prefault(64)

__all__ = [
    "beside_a_bad_disk",
    "calls_of_puts",
    "check",
    "check_after_kill",
    "check_written",
    "close_during_first_order",
    "close_during_rotation",
    "close_race",
    "damage_sweep",
    "fail_allocation",
    "fill_until_killed",
    "flush_and_die",
    "fork_use",
    "fsync_failure",
    "fsync_failure_in_compact_range",
    "full_disk",
    "history",
    "many_databases",
    "many_tables",
    "open_and_close",
    "open_until_killed",
    "open_with_fault",
    "own_full_disk",
    "puts_during_a_sync",
    "record",
    "record_unflushed",
    "reenter",
    "repair_copy",
    "replay",
    "session",
    "settle_session",
    "syncs_of_sessions",
    "write_until_killed",
    "write_until_power_cut",
    "write_with_fault",
    "write_within",
]
