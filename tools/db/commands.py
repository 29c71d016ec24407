"""`db`: every command of the group, gathered."""

from lsmkv_tool.db import info as db_look
from lsmkv_tool.db import maintenance as db_write
from lsmkv_tool.db import scan as db_read
from lsmkv_tool.db.handle import db

__all__ = ["db", "db_look", "db_read", "db_write"]
