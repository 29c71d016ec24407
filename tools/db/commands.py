"""The `db` group."""

from lsmkv_tool.command import group
from lsmkv_tool.db.find import find
from lsmkv_tool.db.get import get, multi_get
from lsmkv_tool.db.info import info
from lsmkv_tool.db.levels import levels
from lsmkv_tool.db.maintenance import checkpoint, compact, destroy, flush, ingest, reset_clock, upgrade
from lsmkv_tool.db.properties import properties
from lsmkv_tool.db.scan import scan
from lsmkv_tool.db.space import space
from lsmkv_tool.db.stats import stats
from lsmkv_tool.db.write import delete, put

INSPECT = [info, levels, space, find, properties, stats]
READ = [get, multi_get, scan]
WRITE = [put, delete]
MAINTAIN = [compact, flush, checkpoint, ingest, upgrade, reset_clock, destroy]

db = group("db", "Inspect, read, write and maintain a database.", [*INSPECT, *READ, *WRITE, *MAINTAIN])
