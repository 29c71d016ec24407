from lsmkv_ext.arrow.array import ArrowColumn
from lsmkv_ext.reader import Reader

def look_up_column(reader: Reader, keys: object, *, value_type: str = "binary") -> ArrowColumn: ...
