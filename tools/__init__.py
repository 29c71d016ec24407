"""`lsmkv-tool`: see inside a database, its tables and its filters."""
