"""`filter` commands."""
