# SSTWriter and SSTReader are Python's; other modules share the translation of a summary.

from lsmkv_ext.table.builder cimport TableSummary

cdef dict summary_dict(const TableSummary* s)
