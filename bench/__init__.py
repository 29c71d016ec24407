"""lsmkv-bench: a db_bench-style workload runner that drives lsmkv and its peers alike."""
