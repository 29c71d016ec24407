"""The data plane: moves bytes, never imports `lsmkv`."""
