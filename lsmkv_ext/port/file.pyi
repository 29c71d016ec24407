def occupy_standard_streams() -> None:
    """Open /dev/null wherever descriptor 0, 1 or 2 is free, so that no file of a database takes its number."""
