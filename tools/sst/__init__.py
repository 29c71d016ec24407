"""`sst` commands."""
