"""`filter info`: print a filter's header."""

from __future__ import annotations

from lsmkv_tool.command import declare, path_argument
from lsmkv_tool.render.output import Output
from lsmkv_tool.sst.table import Table, filter_state


@declare("filter info", example="lsmkv-tool filter info table.sst")
@path_argument("file", "FILE")
def info(out: Output, file: str) -> None:
    """Print the header, fill and expected false positive rate of a table's filter."""
    with Table(file) as table:
        data = {"file": file, "state": filter_state(table.filter), **table.filter}
    out.result(data, lambda printer: printer.fields(data.items()), finding=data["state"] == "damaged")
