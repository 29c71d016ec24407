"""The interfaces of other stores, on lsmkv."""
