def occupy_standard_streams() -> None:
    """Open /dev/null wherever descriptor 0, 1 or 2 is free: no file of a database gets that number."""
