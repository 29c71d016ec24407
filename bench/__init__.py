"""lsmkv-bench: runs db_bench's workloads on lsmkv and its peers."""
