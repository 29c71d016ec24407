"""The data plane: moves bytes, never imports `lsmkv`."""

from importlib.util import find_spec as _find_spec

if _find_spec("lsmkv_ext.limits") is None:
    raise ImportError("the extension modules of lsmkv are not built: run `make build`, or `pip install .`")
