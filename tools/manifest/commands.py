"""The `manifest` group."""

from lsmkv_tool.command import group
from lsmkv_tool.manifest.check import check
from lsmkv_tool.manifest.dump import dump
from lsmkv_tool.manifest.summarize import summarize
from lsmkv_tool.manifest.timeline import timeline

manifest = group(
    "manifest", "Inspect the manifest, which lists a database's tables.", [dump, summarize, check, timeline]
)
