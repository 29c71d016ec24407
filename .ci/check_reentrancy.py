"""Shows where a call uses what a close takes away, after something that may have closed it.

A buffer, a `__bool__`, a finalizer of a collection, or another thread may close the database or iterator in the middle
of a call (lsmkv_ext/port/handle.pxd). This reads the functions of GUARDED line by line, along branches and around
loops, and reports

- a use of guarded state after anything that may run Python code or release the GIL, without a check in between;
- anything that may run Python code while the call is counted in flight: a close in there would wait forever.

Whether a call may run Python code follows from the body of its function. A name it does not know may.
"""

import builtins
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent / "lsmkv_ext"
GUARDED = (
    *("reader.pyx", "store.pyx", "engine.pyx", "large_write.pyx", "read/scan.pyx", "read/iterator.pyx"),
    *("read/cursor.pyx", "read/explain.pyx", "table/sst_reader.pyx", "table/sst_writer.pyx"),
    *("updates.pyx", "transaction.pyx", "nonblocking.pyx"),
    *("columns/scan.pyx", "columns/lookup.pyx", "columns/write.pyx"),
)
# They raise where the state is gone.
CHECKS = {
    "handle_check",
    "check_writable",
    "check_live",
    "open_state",
    "check",
    "check_again",
    "require_entry",
    "_check_open",
    "_open_table",
}
# What a close frees or sets to None, and the functions that rely on their caller's check.
USES = re.compile(
    r"\btree\.(?:state|active)\.\w+|self\.log\.c\b|self\.c\.chunk\b|self\.state\.c\b|builder_\w+\(self\.b\b"
    r"|\b(?:begin_write|write_one|write_payload|put_value|write_batch|attach|step|refill|from_bound|from_key|next_chunk|reverse|make_item|item_key|item_value)\("
)
# A close and a drop take the state of a tree.
TREE_CHECK = re.compile(r"\btree\.state is (?:not )?None")
# Run no Python code and keep the GIL, for the arguments that they get here.
SAFE = re.compile(
    r"PyBytes_\w+|PyList_GET_ITEM|PyTuple_SET_ITEM|Py_INCREF|lsm_\w+|pthread_\w+|usleep|xxh3|mem(?!oryview)\w+|malloc|calloc|realloc|free"
    r"|len|min|max|range|sizeof|isinstance|type|not|and|or|in|is|if|else|return|except|bint|super|cdef|for|while|elif|with"
)
FUNCTION = re.compile(r"^(\s*)(?:async )?(?:cp?def|def)\s.*?\b(\w+)\((.*)$", re.DOTALL)
CALL = re.compile(r"\b(\w+)\(")
ALLOCATES = re.compile(r"(?:=|return|\(|,|\bin|\byield)\s*[\[{](?!\d)|\bPyTuple_New\(")
# Of a call, at worst: nothing; releases the GIL; may run Python code.
EFFECTS = ("none", "releases", "runs")
LEAVES = re.compile(r"^(return|raise|break|continue)\b")


@dataclass
class Function:
    name: str
    file: str
    public: bool  # a def: Python calls it, without a check before
    lines: list[tuple[int, int, str]]  # number, indentation, text
    objects: list[str] = field(default_factory=list)  # parameters without a C type

    @property
    def is_hook(self) -> bool:
        """Only a docstring: the control plane overrides it."""
        return all(text == '""' for _, _, text in self.lines)


@dataclass(frozen=True)
class Effect:
    ran: str = "none"  # one of EFFECTS
    stale_if_fresh: bool = False
    stale_if_stale: bool = True


NOTHING = Effect()
CHECKED = Effect(stale_if_stale=False)
RELEASES = Effect("releases", stale_if_fresh=True)
RUNS = Effect("runs", stale_if_fresh=True)


@dataclass(frozen=True)
class State:
    """Of one point in a function."""

    stale: bool  # something ran since the last check
    ran: str = "none"  # what did, at worst: an effect
    counted: bool = False  # in flight or busy, so a close waits; but in a section another thread closes

    def __or__(self, other: "State") -> "State":
        ran = max(self.ran, other.ran, key=EFFECTS.index)
        return State(self.stale or other.stale, ran, self.counted or other.counted)

    def after(self, effect: "Effect") -> "State":
        if effect.ran == "releases" and self.counted:
            return self  # a close waits
        stale = effect.stale_if_stale if self.stale else effect.stale_if_fresh
        return replace(self, stale=stale, ran=max(self.ran, effect.ran, key=EFFECTS.index))


def logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Without strings and comments; a statement in brackets is one line."""
    text = re.sub(r'("""|\'\'\')(.*?)\1', lambda m: '""' + "\n" * m.group(0).count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"f?\"(?:[^\"\\\n]|\\.)*\"|f?'(?:[^'\\\n]|\\.)*'", '""', text)
    text = re.sub(r"#.*", "", text)
    start, parts, depth = 0, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if not parts and not line.strip():
            continue
        start = start if parts else number
        parts = f"{parts} {line.strip()}" if parts else line.rstrip()
        depth += sum(line.count(c) for c in "([{") - sum(line.count(c) for c in ")]}")
        if depth <= 0:
            yield start, len(parts) - len(parts.lstrip()), parts.strip()
            parts, depth = "", 0


@cache
def functions(path: str, text: str) -> list[Function]:
    return list(_functions(path, text))


@cache
def quiet_functions(text: str) -> frozenset[str]:
    """Declared `nogil`, so Python code cannot run in them."""
    return frozenset(re.findall(r"\b(\w+)\([^()]*(?:\([^()]*\)[^()]*)*\)[^\n:]*\bnogil\b", text))


def _functions(path: str, text: str) -> Iterator[Function]:
    current: Function | None = None
    inside = 0
    for number, indent, line in logical_lines(text):
        match = FUNCTION.match(line) if line.endswith(":") else None
        if match and line.startswith(("def ", "cdef ", "cpdef ")):
            if current:
                yield current
            current, inside = Function(match.group(2), path, line.startswith("def "), []), indent
            signature = match.group(3).rsplit(")", 1)[0]
            names = [part.split("=")[0].strip() for part in signature.split(",")]
            current.objects = [name.removeprefix("object ") for name in names if re.fullmatch(r"(object )?\w+", name)]
        elif current and indent > inside:
            current.lines.append((number, indent, line))
        elif current:
            yield current
            current = None
    if current:
        yield current


class Checker:
    def __init__(self, sources: dict[str, str]) -> None:
        self.problems: set[str] = set()
        self._all = [function for path, text in sources.items() for function in functions(path, text)]
        self._bodies = {function.name: function for function in self._all}
        self._quiet = frozenset().union(*(quiet_functions(text) for text in sources.values()))
        self._effects: dict[str, Effect] = {}

    def run(self) -> list[str]:
        for function in self._all:
            if function.file in GUARDED and function.name != "__cinit__":  # no other code has the object yet
                self._scan(function, State(stale=function.public), report=True)
        return sorted(self.problems)

    def effect(self, name: str) -> Effect:
        if name in CHECKS:
            return CHECKED
        if name in self._quiet or SAFE.fullmatch(name):
            return NOTHING
        # A call of `bytes` is Python's, also if a class of ours has a property of that name.
        if name not in self._bodies or self._bodies[name].is_hook or hasattr(builtins, name):
            return RUNS
        if name not in self._effects:
            self._effects[name] = NOTHING  # recursion
            fresh = self._scan(self._bodies[name], State(False), report=False)
            stale = self._scan(self._bodies[name], State(True), report=False)
            self._effects[name] = Effect(fresh.ran, fresh.stale, stale.stale)
        return self._effects[name]

    def _scan(self, function: Function, state: State, report: bool) -> State:
        """The state at the end."""
        ends: list[State] = []
        last = self._block(function, 0, len(function.lines), state, ends, report)
        return _union([last, *ends]) or state

    def _block(
        self, function: Function, at: int, stop: int, state: State | None, ends: list[State], report: bool
    ) -> State | None:
        """The state after the lines [at, stop); None where they always leave. `ends` gets those of its returns."""
        entry: State | None = None  # before the branches that are open, and
        exits: list[State | None] = []  # after each of them
        while at < stop:
            number, indent, line = function.lines[at]
            end = at + 1
            while end < stop and function.lines[end][1] > indent:
                end += 1
            keyword = re.match(r"\w*", line).group(0)  # type: ignore[union-attr]
            if keyword in {"elif", "else", "except"}:
                state = entry
            elif keyword in {"if", "try"}:
                entry, exits = state, []
            if state is not None:
                state = self._line(function, number, line, state, report)
                if keyword == "return":
                    ends.append(state)
                if keyword in {"return", "raise", "break", "continue"}:
                    state = None
            if end > at + 1 and state is not None:
                before = state
                state = self._block(function, at + 1, end, state, ends, report)
                if keyword in {"for", "while"}:
                    # Twice: what the first round leaves behind meets the second.
                    again = self._block(function, at + 1, end, state, ends, report) if state else None
                    state = _union([before, state, again])
            if keyword in {"if", "elif", "else", "try", "except"}:
                exits.append(state)
                follows = re.match(r"(elif|else|except|finally)\b", function.lines[end][2]) if end < stop else None
                if keyword in {"if", "elif"} and not (follows and follows.group(1) in {"elif", "else"}):
                    exits.append(entry)
                if not follows or follows.group(1) == "finally":
                    state = _union(exits)
                    # A finally also runs after an exception.
                    state = entry if follows and state is None else state
            at = end
        return state

    def _line(self, function: Function, number: int, line: str, state: State, report: bool) -> State:
        where = f"lsmkv_ext/{function.file}:{number}: {function.name}"
        if line.startswith("raise"):
            return state
        if re.search(r"inflight [+-]= 1|\.busy = (True|False)|section_enter\(\)", line):
            return replace(state, counted="+=" in line or "True" in line)
        for effect, what in self._events(function, line):
            if effect is None:
                if state.stale and report:
                    self.problems.add(f"{where}: {what} may be gone: check again")
                continue
            if effect.ran == "runs" and state.counted and report:
                self.problems.add(f"{where}: {what} may run Python code while the call is in flight")
            state = state.after(effect)
        return state

    def _events(self, function: Function, line: str) -> Iterator[tuple[Effect | None, str]]:
        """What a line does, inner calls first; None for a use."""
        found: list[tuple[int, Effect | None, str]] = []
        if re.match(r"with nogil\b", line):
            found.append((0, RELEASES, "releasing the GIL"))
        for name in function.objects:
            tested = rf"\b(?:if|elif|while|and|or|not)\s+{name}\b(?!\s*(?:is\b|in\b|not\b|[(.\[=!<>]))"
            found += [(m.end(), RUNS, f"the truth of {name}") for m in re.finditer(tested, line)]
        found += [(m.end(), RUNS, "an allocation") for m in ALLOCATES.finditer(line)]
        found += [(m.end(), CHECKED, "the state of a tree") for m in TREE_CHECK.finditer(line)]
        for match in CALL.finditer(line):
            name, effect = match.group(1), self.effect(match.group(1))
            if effect != NOTHING:
                found.append((_closing(line, match.end()), effect, f"{name}()"))
        for match in USES.finditer(line):
            end = _closing(line, match.end()) if match.group(0).endswith("(") else match.end()
            found.append((end - 1, None, match.group(0).rstrip("(")))
        yield from ((effect, what) for _, effect, what in sorted(found, key=lambda event: event[0]))


def _closing(line: str, at: int) -> int:
    depth = 1
    while at < len(line) and depth:
        depth += (line[at] in "([{") - (line[at] in ")]}")
        at += 1
    return at


def _union(states: list[State | None]) -> State | None:
    result = None
    for state in states:
        if state is not None:
            result = state if result is None else result | state
    return result


def check(sources: dict[str, str]) -> list[str]:
    """The problems in sources by path below lsmkv_ext."""
    return Checker(sources).run()


def main() -> int:
    paths = [path for path in ROOT.rglob("*") if path.suffix in {".pyx", ".pxd"}]
    problems = check({str(path.relative_to(ROOT)): path.read_text() for path in paths})
    print("\n".join(problems) or f"{len(GUARDED)} modules check again after whatever may have closed them")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
