BOUNDS: tuple[float, ...]
