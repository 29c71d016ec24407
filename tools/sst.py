"""`sst`: every command of the group, gathered."""

from lsmkv_tool import sst_look, sst_make
from lsmkv_tool.sst_group import sst

__all__ = ["sst", "sst_look", "sst_make"]
