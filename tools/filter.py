"""`filter`: every command of the group, gathered."""

from lsmkv_tool import filter_look, filter_tune
from lsmkv_tool.filter_group import filter

__all__ = ["filter", "filter_look", "filter_tune"]
