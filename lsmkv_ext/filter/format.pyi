from typing import Any

from typing_extensions import Buffer

def describe_filter(header: Buffer, bits: Buffer) -> dict[str, Any]: ...
