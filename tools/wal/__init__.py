"""`wal` commands."""
