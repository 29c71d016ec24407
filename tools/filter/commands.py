"""The `filter` group."""

from lsmkv_tool.command import group
from lsmkv_tool.filter.advise import advise
from lsmkv_tool.filter.fpr import fpr
from lsmkv_tool.filter.heat import heat
from lsmkv_tool.filter.info import info
from lsmkv_tool.filter.ls import ls
from lsmkv_tool.filter.probe import probe
from lsmkv_tool.filter.rebuild import rebuild

filter = group("filter", "Inspect, measure and tune Bloom filters.", [ls, info, probe, fpr, heat, advise, rebuild])
