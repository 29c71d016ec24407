"""`sst info`: print a table's properties."""

from __future__ import annotations

from typing import Any

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render import units
from lsmkv_tool.render.columns import key, num
from lsmkv_tool.render.output import Output
from lsmkv_tool.render.printer import Printer
from lsmkv_tool.sst.table import Table

RANGE_COLUMNS = [key("from", "start"), key("to", "stop"), num("seq", "seq")]


@declare("sst info", example="lsmkv-tool sst info table.sst", key_format=True, table=True)
@path_argument("file", "FILE")
def info(out: Output, file: str) -> None:
    """Print a table's properties, filter header and range tombstones."""
    with Table(file) as table:
        data: dict[str, Any] = {
            "file": file,
            "size": table.size,
            "properties": table.properties,
            "smallest": out.key(table.smallest),
            "largest": out.key(table.largest),
            "range_tombstones": [
                {"start": out.key(start), "stop": out.key(stop), "seq": seq}
                for start, stop, seq in table.range_tombstones
            ],
            "filter": table.filter,
        }

    def show(printer: Printer) -> None:
        printer.fields([("file", file), ("size", units.size(data["size"]))])
        printer.fields([("keys", f"{data['smallest']} .. {data['largest']}")])
        for title in ("properties", "filter"):
            printer.line()
            printer.heading(title)
            printer.fields((f"  {name}", value) for name, value in data[title].items())
        if data["range_tombstones"]:
            printer.line()
            printer.heading("range tombstones")
            printer.table(RANGE_COLUMNS, data["range_tombstones"])

    out.result(data, show)
