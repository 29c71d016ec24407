"""Statistics of an open database.

The modules are imported at their first use: opening a database needs none of them, and they take a quarter of the time
of an import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lsmkv_ext.port.finalization import require_running

if TYPE_CHECKING:
    from lsmkv.stats import alarms as alarms
    from lsmkv.stats import export as export
    from lsmkv.stats import introspect as introspect
    from lsmkv.stats import tables as tables


def __getattr__(name: str) -> Any:
    if name not in ("alarms", "export", "introspect", "tables"):
        raise AttributeError(f"module 'lsmkv.stats' has no attribute {name!r}")
    try:
        return importlib.import_module(f"lsmkv.stats.{name}")
    except ImportError:
        require_running()  # an interpreter that shuts down imports nothing
        raise
