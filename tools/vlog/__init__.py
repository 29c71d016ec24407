"""`vlog` commands."""
