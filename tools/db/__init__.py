"""`db` commands."""
