"""lsmkv-bench: a db_bench-style workload runner."""
