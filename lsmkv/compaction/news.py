"""The texts and figures of the events that background work publishes. `lsmkv.events` delivers them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from lsmkv.compaction.jobs import Result
from lsmkv.compaction.picker import CompactionPlan
from lsmkv.events import Events

if TYPE_CHECKING:
    from lsmkv.recovery.stored_state import RecoveryReport

MIB = 1 << 20
# A longer stop of a writer is a warning.
LONG_STOP_NS = 1_000_000_000

P = ParamSpec("P")


def _never_fails(publish: Callable[Concatenate[Events, P], None]) -> Callable[Concatenate[Events, P], None]:
    """An event for which there is no memory is dropped: it must not fail the work that it reports."""

    def attempt(events: Events, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            publish(events, *args, **kwargs)
        except MemoryError:
            events.dropped += 1

    return attempt


@_never_fails
def opened(events: Events, recovery: RecoveryReport, tables: int, read_only: bool) -> None:
    if not recovery.clean:
        events.publish(
            "recovery",
            f"replayed {recovery.records} records of {recovery.logs} logs in {recovery.seconds:.3f} s",
            logs=recovery.logs,
            records=recovery.records,
            entries=recovery.entries,
            bytes=recovery.bytes,
            tables=recovery.tables,
            torn=len(recovery.torn),
            salvaged=list(recovery.salvaged),
            seconds=recovery.seconds,
        )
    how = "created" if recovery.created else "opened read-only" if read_only else "opened"
    events.publish(
        "open",
        f"{how} with {tables} tables in {recovery.seconds:.3f} s",
        tables=tables,
        created=recovery.created,
        read_only=read_only,
        seconds=recovery.seconds,
    )


@_never_fails
def closed(events: Events) -> None:
    events.publish("close", "closed")


@_never_fails
def flushed(events: Events, result: Result) -> None:
    events.publish(
        "flush",
        f"flushed {result.entries_out} entries, {result.bytes_written / MIB:.1f} MiB in {result.ns / 1e9:.3f} s",
        entries=result.entries_out,
        bytes=result.bytes_written,
        tables=result.outputs,
        seconds=result.ns / 1e9,
        reason=result.reason,
    )


@_never_fails
def compacted(events: Events, keyspace: str, plan: CompactionPlan, result: Result) -> None:
    seconds = result.ns / 1e9
    events.publish(
        "compaction",
        f"{plan.kind.value} L{plan.level} to L{plan.output_level} ({plan.reason}): {result.bytes_read / MIB:.1f}"
        f" MiB to {result.bytes_written / MIB:.1f} MiB in {seconds:.3f} s",
        keyspace=keyspace,
        work=plan.kind.value,
        reason=plan.reason,
        level=plan.level,
        output_level=plan.output_level,
        tables_in=len(plan.upper) + len(plan.lower),
        tables_out=result.outputs,
        bytes_in=result.bytes_read,
        bytes_out=result.bytes_written,
        entries_in=result.entries_in,
        entries_out=result.entries_out,
        seconds=seconds,
    )


@_never_fails
def pressed(events: Events, before: str, now: str, delay_ns: int, stopped_ns: int) -> None:
    """The pressure on writers changed. Publishes nothing if its state did not, as with another delay in a slowdown."""
    if before == now:
        return
    level = logging.WARNING if before == "stop" and stopped_ns >= LONG_STOP_NS else logging.INFO
    after = f" after {stopped_ns / 1e9:.3f} s" if before == "stop" else ""
    text = {
        "stop": "writers are stopped until compactions catch up",
        "slowdown": f"writers are slowed down{after}: compactions are behind",
        "none": f"writers run at full speed again{after}",
    }[now]
    events.publish("stall", text, level, state=now, before=before, delay_ns_per_kib=delay_ns, seconds=stopped_ns / 1e9)


@_never_fails
def waited(events: Events, ns: int) -> None:
    """A writer waited for the flush of a memtable."""
    events.publish(
        "stall",
        f"a writer waited {ns / 1e9:.3f} s for a flush",
        logging.WARNING if ns >= LONG_STOP_NS else logging.INFO,
        state="flush",
        seconds=ns / 1e9,
    )


@_never_fails
def failed(events: Events, work: str, error: BaseException, *, read_only: bool = False) -> None:
    """The caller has logged the error."""
    text = f"{work} failed: {error}" if not read_only else f"read-only from now on: {error}"
    events.publish("error", text, logging.ERROR, logged=True, work=work, error=error, read_only=read_only)
