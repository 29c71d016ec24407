"""The `wal` group."""

from lsmkv_tool.command import group
from lsmkv_tool.wal.dump import dump
from lsmkv_tool.wal.ls import ls
from lsmkv_tool.wal.verify import verify

wal = group("wal", "Inspect write-ahead logs.", [ls, dump, verify])
