"""`db`: every command of the group, gathered."""

from lsmkv_tool import db_look, db_read, db_write
from lsmkv_tool.db_group import db

__all__ = ["db", "db_look", "db_read", "db_write"]
