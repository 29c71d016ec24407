"""The report's section about flushes and compactions."""

from __future__ import annotations

from collections.abc import Sequence

from lsmkv_tool.manifest.timeline import COLUMNS
from lsmkv_tool.render import html, units
from lsmkv_tool.render.columns import Row

MAX_BARS, MAX_ROWS = 16, 100


def history_section(rows: Sequence[Row]) -> str:
    if not rows:
        return html.section("Flushes and compactions", html.note("None yet."))
    drawn: list[tuple[str, list[html.Bar]]] = []
    for row in rows[-MAX_BARS:]:
        label = " ".join([(row["time"] or "")[11:19], row["reason"] or "", row["keyspace"] or ""])
        done = (
            f"wrote {units.size(row['out_bytes'])}"
            if row["out_files"]
            else f"moved {units.counted(row['moved'], 'table')}"
        )
        bars: list[html.Bar] = [(row["out_bytes"], "blue", done)]
        if row["in_bytes"]:
            bars.insert(0, (row["in_bytes"], "light", f"read {units.size(row['in_bytes'])}"))
        drawn.append((label, bars))
    omitted = max(0, len(rows) - MAX_ROWS)
    some = f"The last {len(drawn)} of {len(rows)}" if len(drawn) < len(rows) else "All"
    text = f"{some} since the start of this manifest; times in UTC."
    all_rows = html.table(COLUMNS, rows[-MAX_ROWS:])
    title = f"The last {MAX_ROWS} as a table" if omitted else "All as a table"
    return html.section("Flushes and compactions", html.bars(drawn), html.note(text), html.details(title, all_rows))
