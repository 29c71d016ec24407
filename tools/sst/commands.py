"""`sst`: every command of the group, gathered."""

from lsmkv_tool.sst import build as sst_make
from lsmkv_tool.sst import info as sst_look
from lsmkv_tool.sst.paths import sst

__all__ = ["sst", "sst_look", "sst_make"]
