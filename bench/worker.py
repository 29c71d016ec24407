"""The process of one engine. It reads one command per step from stdin and writes events to stdout, as JSON lines."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from dataclasses import replace
from typing import Any, TextIO

from . import resources
from .engines import Unsupported
from .session import Refused, Session
from .settings import Settings
from .workloads.benchmark_list import Step, parse_steps
from .workloads.operations import largest_value
from .workloads.registry import find
from .workloads.verify import WrongAnswer

# Exit codes.
WRONG_ANSWER = 3
REFUSED = 4


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner gets Ctrl-C too, and kills its workers
    command = json.loads(sys.stdin.readline())
    out = _private_stdout()

    def emit(event: dict[str, Any]) -> None:
        out.write(json.dumps(event) + "\n")
        out.flush()

    settings = Settings.from_dict(command["settings"]).resolved()
    gc.disable()  # its pauses would hit operations by chance
    session = Session(command["engine"], command["folder"], settings, emit)
    emit({"event": "ready"})
    steps = iter(enumerate(parse_steps(settings.benchmarks)))
    try:
        for line in sys.stdin:
            if not json.loads(line)["go"]:
                break
            index, step = next(steps)
            if index == 0 and settings.use_existing_db:
                session.restore(settings)
            run_step(session, settings, step, index)
            emit({"event": "turn"})
        session.close()
        if command.get("keep"):
            session.save()
    except WrongAnswer as error:
        emit({"event": "wrong", "message": str(error)})
        return WRONG_ANSWER
    except Refused as error:
        emit({"event": "refused", "message": str(error)})
        return REFUSED
    except Exception as error:
        emit({"event": "failed", "message": f"{type(error).__name__}: {error}"})
        raise
    emit({"event": "end"})
    return 0


def _private_stdout() -> TextIO:
    """A copy of stdout for events. The output of libraries goes to stderr."""
    copy = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(copy, "w", encoding="utf-8")


def run_step(session: Session, settings: Settings, step: Step, index: int) -> None:
    workload = find(step.name)
    if workload.ordered and not session.engine_type.ordered:
        message = f"{session.engine_type.name} has no ordered keys"
        session.emit({"event": "skip", "workload": step.label, "message": message})
        return
    cfg = workload.settings(settings.with_flags(step.flags)).resolved()
    if cfg.threads > 1 and not workload.threads:
        session.emit({"event": "note", "workload": step.label, "message": "runs in one thread"})
        cfg = replace(cfg, threads=1)
    if workload.fresh:
        os.sync()  # otherwise this engine would wait for the writeback of others
        resources.warm_memory(16 * cfg.num * (cfg.key_size + largest_value(cfg)))
    for attempt in range(step.warmup + step.repeat):
        measured = attempt >= step.warmup
        session.turn = index * 1000 + attempt
        session.emit({"event": "start", "workload": step.label, "attempt": attempt, "warmup": not measured})
        engine = session.open(cfg, fresh=workload.fresh and not settings.use_existing_db)
        if attempt == 0:
            session.emit({"event": "mapping", "workload": step.label, "mapping": engine.mapping()})
        try:
            with session.measured() as used:
                outcome = workload.run(session, cfg)
                used["settle_seconds"] = resources.wait_until_idle() if workload.writes and cfg.settle else None
        except Unsupported as error:
            session.emit({"event": "skip", "workload": step.label, "message": str(error)})
            return
        record = session.result(step.label, cfg, outcome, used)
        record.update(name=step.name, repeat=attempt - step.warmup)
        if measured:
            session.emit({"event": "result", "result": record})


if __name__ == "__main__":
    sys.exit(main())
