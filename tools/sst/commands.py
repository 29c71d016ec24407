"""The `sst` group."""

from lsmkv_tool.command import group
from lsmkv_tool.sst.build import build
from lsmkv_tool.sst.diff import diff
from lsmkv_tool.sst.info import info
from lsmkv_tool.sst.layout import blocks, layout
from lsmkv_tool.sst.ls import ls
from lsmkv_tool.sst.recompress import recompress
from lsmkv_tool.sst.scan import scan
from lsmkv_tool.sst.verify import verify

sst = group(
    "sst",
    "Inspect, build and compare tables, in a database or standalone.",
    [ls, info, layout, blocks, scan, verify, build, recompress, diff],
)
