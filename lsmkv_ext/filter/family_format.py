"""The bytes of the filters for Python: a header of 64 bytes, and a payload. Byte grid: docs/format.md.

A `BlockedBloom` has the header of a table's filter (filter/format.pxd) instead. Any of them may be compressed.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

import xxhash

from lsmkv_ext.errors import CorruptionError

if TYPE_CHECKING:
    from typing_extensions import Buffer

MAGIC = b"LKVF"
VERSION = 1
HASH_XXH3 = 1
HEADER_SIZE = 64
PAYLOAD_SUM_SEED = 0x6269747366696C74
HEADER_SUM_SEED = 0x68656164666C7472

LARGEST_RATIO = 1100  # of zlib it is 1032

KIND_COUNTING = 3
KIND_SCALABLE = 4
KIND_ROTATING = 5
KIND_SHARED = 6
KIND_COMPRESSED = 15

# magic, version, kind, hash, k | length of the payload, count, seed | fields of the kind | checksum of the payload
_HEADER = struct.Struct("<4sBBBBQQQ16sQ")


class Blob(NamedTuple):
    k: int
    count: int
    seed: int
    fields: bytes  # 16 bytes, which the kind defines
    payload: memoryview


def encode(kind: int, k: int, count: int, seed: int, fields: bytes, payload: Buffer) -> bytes:
    size = memoryview(payload).nbytes
    checksum = xxhash.xxh3_64_intdigest(payload, PAYLOAD_SUM_SEED)
    head = _HEADER.pack(MAGIC, VERSION, kind, HASH_XXH3, k, size, count, seed, fields, checksum)
    return b"".join((head, struct.pack("<Q", xxhash.xxh3_64_intdigest(head, HEADER_SUM_SEED)), payload))


def decode(data: Buffer, kind: int) -> Blob:
    """Raises `CorruptionError` unless it is an undamaged blob of this kind."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        raise refuse(f"{len(view)} bytes are too few")
    head, stored = view[:56], struct.unpack_from("<Q", view, 56)[0]
    if xxhash.xxh3_64_intdigest(head, HEADER_SUM_SEED) != stored:
        raise refuse("bad checksum")
    magic, version, found, hash_kind, k, size, count, seed, fields, checksum = _HEADER.unpack(head)
    if (magic, version, found, hash_kind) != (MAGIC, VERSION, kind, HASH_XXH3):
        raise refuse("unknown version, kind or hash")
    if size != len(view) - HEADER_SIZE:
        raise refuse("bad length")
    payload = view[HEADER_SIZE:]
    if xxhash.xxh3_64_intdigest(payload, PAYLOAD_SUM_SEED) != checksum:
        raise refuse("bad checksum")
    return Blob(k, count, seed, fields, payload)


def pack(parts: list[bytes]) -> bytes:
    """Parts, each behind its length: the payload of a filter made of filters."""
    return b"".join(piece for part in parts for piece in (struct.pack("<Q", len(part)), part))


def unpack(payload: memoryview) -> list[memoryview]:
    parts, at = [], 0
    while at < len(payload):
        if len(payload) - at < 8:
            raise refuse("bad length of a part")
        (size,) = struct.unpack_from("<Q", payload, at)
        at += 8
        if size > len(payload) - at:
            raise refuse("bad length of a part")
        if bytes(payload[at : at + 4]) == MAGIC and payload[at + 5 : at + 6] == bytes([KIND_COMPRESSED]):
            raise refuse("a compressed part")
        parts.append(payload[at : at + size])
        at += size
    return parts


def refuse(reason: str) -> CorruptionError:
    return CorruptionError(f"not a filter: {reason}")


def compress(blob: bytes) -> bytes:
    """The blob in fewer bytes; the blob itself if they are not fewer."""
    packed = encode(KIND_COMPRESSED, 0, len(blob), 0, bytes(16), zlib.compress(blob, 6))
    return packed if len(packed) < len(blob) else blob


def expand(data: Buffer) -> memoryview:
    """The blob that was compressed; any other data as it is."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE or bytes(view[:4]) != MAGIC or view[5] != KIND_COMPRESSED:
        return view
    packed = decode(view, KIND_COMPRESSED)
    if packed.count > LARGEST_RATIO * len(packed.payload):
        raise refuse("bad length of the compressed bytes")
    # The output never grows beyond the size that the header names.
    inflater = zlib.decompressobj()
    try:
        blob = inflater.decompress(packed.payload, packed.count + 1)
    except zlib.error as error:
        raise refuse(f"its compressed bytes are damaged ({error})") from None
    if len(blob) != packed.count or not inflater.eof or inflater.unused_data:
        raise refuse("bad length of the compressed bytes")
    return memoryview(blob)
