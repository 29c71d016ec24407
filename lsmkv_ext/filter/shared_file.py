"""The file of a filter that several processes share: header, state and bits. Byte grid: docs/format.md.

Every process that has it open holds a shared `flock`. Whoever gets an exclusive one is alone: the first to open
verifies the seal and breaks it, the last to close seals the bits with their checksum. A kill leaves a broken seal and
all bits behind. If the machine went down, which the boot id tells, bits may be missing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
import time
from contextlib import suppress
from pathlib import Path

import xxhash

from lsmkv_ext.errors import CorruptionError
from lsmkv_ext.errors import IOError as LsmkvIOError
from lsmkv_ext.filter.family_format import HASH_XXH3, HEADER_SUM_SEED, KIND_SHARED, MAGIC, VERSION

STATE_OFFSET = 64
COUNT_OFFSET = 128
BITS_OFFSET = 4096
BLOCK = 64
STATE_SUM_SEED = 0x7374617465666C74
BITS_SUM_SEED = 0x6269747366696C74
OPEN, SEALED = 1, 2

# magic, version, kind, hash, k | blocks | zero | seed | millibits | zero; its checksum follows
_HEADER = struct.Struct("<4sBBBBQQQI20x")
# OPEN or SEALED | boot id | checksum of the bits | keys; its checksum follows
_STATE = struct.Struct("<Q16sQQ")
_MADV_POPULATE_WRITE = 23


class SharedFile:
    """The file, mapped, with a shared lock."""

    def __init__(
        self, path: str | os.PathLike[str], millibits: int | None, n_blocks: int | None, k: int, seed: int | None,
        recover: bool,
    ) -> None:  # fmt: skip
        self.path = os.path.abspath(os.fsdecode(path))
        self._fd = -1
        self._pid = os.getpid()
        self._sealable = False
        try:
            if n_blocks is not None and millibits is not None and not os.path.exists(self.path):
                _create(self.path, millibits, n_blocks, k, seed or 0)
            self._open(recover)
            self._sealable = True
            self._require(millibits, n_blocks, seed)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, LsmkvIOError):
                raise LsmkvIOError(error.errno, error.strerror, self.path) from error
            raise

    def _open(self, recover: bool) -> None:
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            alone = _try_alone(self._fd)
            if not alone:
                fcntl.flock(self._fd, fcntl.LOCK_SH)
            if not self._is_at_path():
                self._unmap()
                continue
            self._map()
            if alone:
                self._break_seal(recover)
                fcntl.flock(self._fd, fcntl.LOCK_SH)
            # Between two locks another process may have been alone and sealed it.
            if self._state()[0] == OPEN:
                return
            self._unmap()
            time.sleep(0.001)

    def _is_at_path(self) -> bool:
        """Whether nobody has replaced the file before it was locked."""
        mine, now = os.fstat(self._fd), os.stat(self.path)
        return (mine.st_dev, mine.st_ino) == (now.st_dev, now.st_ino)

    def _map(self) -> None:
        size = os.fstat(self._fd).st_size
        if size < BITS_OFFSET:
            raise self._damaged("it is too short")
        self.mapping = mmap.mmap(self._fd, size)
        head = self.mapping[: _HEADER.size]
        if xxhash.xxh3_64_intdigest(head, HEADER_SUM_SEED) != struct.unpack_from("<Q", self.mapping, 56)[0]:
            raise self._damaged("bad checksum of its header")
        magic, version, kind, hash_kind, self.k, self.n_blocks, _, self.seed, self.millibits = _HEADER.unpack(head)
        if (magic, version, kind, hash_kind) != (MAGIC, VERSION, KIND_SHARED, HASH_XXH3):
            raise self._damaged("unknown version, kind or hash")
        if not (0 < self.k <= 16 and self.n_blocks and 0 < self.millibits <= 100_000):
            raise self._damaged("impossible geometry")
        if size != BITS_OFFSET + BLOCK * self.n_blocks:
            raise self._damaged("bad length")

    def _break_seal(self, recover: bool) -> None:
        """Checks what the last process left, and notes that the file is open."""
        state, boot, checksum, count = self._state()
        if state == SEALED:
            if self._bits_sum() != checksum:
                raise self._damaged("bad checksum of its bits")
            struct.pack_into("<Q", self.mapping, COUNT_OFFSET, count)
        elif not recover and (boot != boot_id() or not any(boot)):
            raise self._damaged("it was open when the machine went down, so keys may be missing; see recover=")
        self._note(OPEN, 0, 0)

    def _state(self) -> tuple[int, bytes, int, int]:
        page = self.mapping[STATE_OFFSET : STATE_OFFSET + _STATE.size + 8]
        if xxhash.xxh3_64_intdigest(page[:-8], STATE_SUM_SEED) != int.from_bytes(page[-8:], "little"):
            raise self._damaged("bad checksum of its state")
        state, boot, checksum, count = _STATE.unpack(page[:-8])
        if state not in (OPEN, SEALED):
            raise self._damaged("unknown state")
        return state, boot, checksum, count

    def _note(self, state: int, checksum: int, count: int) -> None:
        self.mapping[STATE_OFFSET : STATE_OFFSET + _STATE.size + 8] = _encode_state(state, checksum, count)
        self.mapping.flush(0, BITS_OFFSET)

    def _bits_sum(self) -> int:
        with memoryview(self.mapping) as whole, whole[BITS_OFFSET:] as bits:
            return xxhash.xxh3_64_intdigest(bits, BITS_SUM_SEED)

    def _require(self, millibits: int | None, n_blocks: int | None, seed: int | None) -> None:
        asked = (("bits_per_key, in thousandths", millibits), ("n_blocks", n_blocks), ("seed", seed))
        for (name, given), stored in zip(asked, (self.millibits, self.n_blocks, self.seed), strict=True):
            if given is not None and given != stored:
                raise ValueError(f"{self.path} has {name} {stored}, not {given}; a shared filter does not grow")

    def prefault(self) -> None:
        try:
            self.mapping.madvise(_MADV_POPULATE_WRITE)
        except OSError:  # Linux before 5.14
            sum(self.mapping[at] for at in range(0, len(self.mapping), mmap.PAGESIZE))

    def flush(self) -> None:
        try:
            self.mapping.flush()
        except OSError as error:
            raise LsmkvIOError(error.errno, error.strerror, self.path) from error

    def close(self) -> None:
        """Seals the bits if no other process has the file open. A child of the process that opened it only lets go."""
        if self._fd < 0:
            return
        try:
            if os.getpid() == self._pid and self._sealable:
                self._seal()
        finally:
            self._unmap()

    def _seal(self) -> None:
        if _try_alone(self._fd) and self._state()[0] == OPEN:
            self.flush()
            self._note(SEALED, self._bits_sum(), struct.unpack_from("<Q", self.mapping, COUNT_OFFSET)[0])

    def _unmap(self) -> None:
        fd, self._fd = self._fd, -1
        if hasattr(self, "mapping"):
            with suppress(BufferError):  # a collection finds the file before the filter that uses its mapping
                self.mapping.close()
            del self.mapping
        if fd >= 0:
            if os.getpid() == self._pid:  # the lock belongs to all copies of the descriptor
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _damaged(self, reason: str) -> CorruptionError:
        return CorruptionError(f"not a shared filter: {reason}", self.path)


def _try_alone(fd: int) -> bool:
    """Whether the lock is exclusive now. If not, it is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def boot_id() -> bytes:
    """16 bytes that change with every start of the machine; zeros if unknown."""
    try:
        return bytes.fromhex(Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", ""))[:16]
    except (OSError, ValueError):
        return bytes(16)


def _encode_state(state: int, checksum: int, count: int) -> bytes:
    body = _STATE.pack(state, boot_id(), checksum, count)
    return body + xxhash.xxh3_64_intdigest(body, STATE_SUM_SEED).to_bytes(8, "little")


def _create(path: str, millibits: int, n_blocks: int, k: int, seed: int) -> None:
    """A sealed, empty file, complete as soon as it has its name. Another process may be faster."""
    head = _HEADER.pack(MAGIC, VERSION, KIND_SHARED, HASH_XXH3, k, n_blocks, 0, seed, millibits)
    head += xxhash.xxh3_64_intdigest(head, HEADER_SUM_SEED).to_bytes(8, "little")
    fresh = f"{path}.{secrets.token_hex(8)}.tmp"
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # Space for all of it now: a full disk would kill whoever stores into the mapping.
        os.posix_fallocate(fd, 0, BITS_OFFSET + BLOCK * n_blocks)
        with (
            mmap.mmap(fd, BITS_OFFSET + BLOCK * n_blocks) as whole,
            memoryview(whole) as view,
            view[BITS_OFFSET:] as bits,
        ):
            checksum = xxhash.xxh3_64_intdigest(bits, BITS_SUM_SEED)
        os.pwrite(fd, head + _encode_state(SEALED, checksum, 0), 0)
        os.fsync(fd)
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
    finally:
        os.unlink(fresh)
        os.close(fd)
    _sync_directory(os.path.dirname(path))


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
