"""Reads that wait for the disk are started together: multi_get, and a seek in several tables."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest
from databases import keep_still

import lsmkv

# Every read takes at least 0.2 ms, and calls of posix_fadvise are counted.
SLOW = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
int started;
ssize_t pread(int fd, void *buf, size_t n, off_t at) { usleep(200); return syscall(SYS_pread64, fd, buf, n, at); }
ssize_t pread64(int fd, void *buf, size_t n, off_t at) { return pread(fd, buf, n, at); }
ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags) {
    usleep(200);
    return syscall(SYS_preadv2, fd, v, n, at, 0L, flags);
}
ssize_t preadv64v2(int fd, const struct iovec *v, int n, off_t at, int flags) { return preadv2(fd, v, n, at, flags); }
int posix_fadvise(int fd, off_t at, off_t n, int advice) { started++; return 0; }
int posix_fadvise64(int fd, off_t at, off_t n, int advice) { return posix_fadvise(fd, at, n, advice); }
"""

WORK = """
import ctypes, sys
import lsmkv
started = ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[2]), "started")
with lsmkv.open(sys.argv[1], "r", block_cache_size=0) as db:
    db.multi_get([b"%06d" % 0])     # from now on reads are known to wait
    for _ in range(2):
        before = started.value
        assert db.multi_get([b"%06d" % i for i in range(0, 4000, 50)]) == [b"v" * 100] * 80
        print(started.value - before)
    before = started.value
    assert db.iterator(start=b"%06d" % 2000).take(2)[0] == (b"%06d" % 2000, b"v" * 100)
    assert db.iterator(reverse=True, stop=b"%06d" % 2000).take(2)[0] == (b"%06d" % 1999, b"v" * 100)
    print(started.value - before)
"""


@pytest.mark.skipif("LSMKV_SANITIZED" in os.environ, reason="a sanitizer comes before other libraries")
@pytest.mark.skipif(sys.platform != "linux" or not shutil.which("cc"), reason="needs a compiler and Linux")
def test_reads_that_wait_are_started_together(path, tmp_path):
    with lsmkv.open(path, compression=None, l0_compaction_trigger=20) as db:
        keep_still(db)
        for part in range(4):
            for i in range(part, 4000, 4):
                db.put(b"%06d" % i, b"v" * 100)
            db.flush()
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input=SLOW.encode(), check=True)
    assert ctypes.CDLL(str(library)).posix_fadvise
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(path), str(library)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(library)},
    )
    first, second, seeks = map(int, done.stdout.split())
    # One for each key. The filters leave it one table, with few exceptions.
    assert first >= 70
    assert second >= 70
    assert seeks >= 8  # two of them, in four tables
