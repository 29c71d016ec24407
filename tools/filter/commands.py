"""`filter`: every command of the group, gathered."""

from lsmkv_tool.filter import advise as filter_tune
from lsmkv_tool.filter import fpr as filter_look
from lsmkv_tool.filter.tables import filter

__all__ = ["filter", "filter_look", "filter_tune"]
