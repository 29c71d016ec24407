"""The `vlog` group."""

from lsmkv_tool.command import group
from lsmkv_tool.vlog.info import info
from lsmkv_tool.vlog.ls import ls
from lsmkv_tool.vlog.verify import verify

vlog = group("vlog", "Inspect value logs, which hold large values.", [ls, info, verify])
