"""Backups in an S3 server on loopback: moto, behind a proxy that fails requests."""

import contextlib
import itertools
import os
import pty
import random
import re
import subprocess
import sys
import threading
import urllib.request
from datetime import timedelta

import boto3
import pytest
from fault_proxy import FaultProxy
from moto.server import ThreadedMotoServer

import lsmkv

URL = "s3://bucket/shop"
NUMBERS = itertools.count()
BACKOFF = {"init_backoff": timedelta(milliseconds=10), "max_backoff": timedelta(milliseconds=100), "base": 2}


@pytest.fixture(scope="module")
def server():
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def s3(server):
    """A client, and an empty bucket."""
    endpoint = f"http://127.0.0.1:{server}"
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset", method="POST")).close()
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="bucket")
    return client


@pytest.fixture
def proxy(server, s3):
    proxy = FaultProxy(server)
    yield proxy
    proxy.close()


@pytest.fixture
def store(proxy):
    return {"storage_options": options(proxy.port)}


def options(port):
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "test",
        "secret_access_key": "test",
        "client_options": {"allow_http": True, "timeout": "2s"},
        "retry_config": {"max_retries": 4, "backoff": BACKOFF, "retry_timeout": timedelta(seconds=20)},
    }


@pytest.fixture
def db(path):
    with lsmkv.open(path, write_buffer_size=256 << 10, target_file_size=256 << 10) as db:
        for i in range(10_000):
            db[b"%06d" % i] = os.urandom(100)
        db[b"large"] = os.urandom(6 << 20)  # sent in several parts
        db.compact_range()
        yield db


def restored(tmp_path, store, version=None):
    dest = tmp_path / f"restored-{next(NUMBERS)}"
    lsmkv.restore(URL, dest, version, **store)
    with lsmkv.open(dest, "r") as copy:
        return dict(copy)


def sent(proxy):
    return sum(size for method, path, size in proxy.requests if method in ("PUT", "POST") and "/data/" in path)


def test_versions_are_backed_up_restored_and_pruned(db, tmp_path, store, s3):
    expected = []
    for edition in range(3):
        db[b"edition"] = b"%d" % edition
        version = lsmkv.backup(db, URL, **store)
        expected.append((version.id, dict(db)))
    assert [each.id for each in lsmkv.backups(URL, **store)] == [version for version, _ in expected]
    for version, contents in expected:
        assert restored(tmp_path, store, version) == contents
    assert len(lsmkv.prune_backups(URL, 1, **store)) == 2
    (last,) = lsmkv.backups(URL, **store)
    stored = {each["Key"] for each in s3.list_objects_v2(Bucket="bucket", Prefix="shop/data/")["Contents"]}
    assert stored == {f"shop/{name}" for name in last.objects}
    assert restored(tmp_path, store) == expected[-1][1]


def test_a_second_backup_of_few_changes_sends_at_most_the_files_that_changed(db, proxy, store):
    first = lsmkv.backup(db, URL, **store)
    for i in range(100):
        db[b"%06d" % i] = os.urandom(100)
    proxy.requests.clear()
    second = lsmkv.backup(db, URL, **store)
    changed = sum(file.size for file in second.files if file.object not in first.objects)
    assert second.sent_bytes == changed < second.bytes / 10
    assert sent(proxy) <= 1.5 * changed


@pytest.mark.parametrize("fault", ["500", "slow", "close", "cut"])
@pytest.mark.parametrize("every", [3, 7])
def test_requests_that_fail_are_repeated(db, tmp_path, proxy, store, fault, every):
    lsmkv.backup(db, URL, **store)
    count = 0

    def fail(method, path):
        nonlocal count
        count += 1
        return fault if count % every == 0 and (fault != "slow" or count < 20) else None

    proxy.fault = fail
    db[b"new"] = b"1"
    try:
        lsmkv.backup(db, URL, **store)
        seen = restored(tmp_path, store)
    except (lsmkv.IOError, lsmkv.CorruptionError):
        assert fault in ("close", "cut")  # not every request can be repeated
        proxy.fault = lambda *_: None
        lsmkv.backup(db, URL, **store)
        seen = restored(tmp_path, store)
    assert count > every
    assert seen == dict(db)


def test_a_server_that_is_down_gives_an_error_and_no_version(db, tmp_path, proxy, store):
    before = lsmkv.backup(db, URL, **store)
    contents = dict(db)
    db[b"new"] = b"1"
    for fault in ("500", "close"):
        proxy.fault = lambda method, path, fault=fault: fault
        for call in (lambda: lsmkv.backup(db, URL, **store), lambda: lsmkv.backups(URL, **store)):
            with pytest.raises(lsmkv.IOError):
                call()
        with pytest.raises(lsmkv.IOError):
            lsmkv.restore(URL, tmp_path / "copy", **store)
        proxy.fault = lambda *_: None
    assert [each.id for each in lsmkv.backups(URL, **store)] == [before.id]
    assert restored(tmp_path, store) == contents
    assert not (tmp_path / "copy").exists() and not (tmp_path / "db.backup").exists()


def test_uploads_that_are_lost_are_sent_again(db, tmp_path, proxy, store):
    lost = set()

    def lose(method, path):
        if method == "PUT" and "/data/" in path and "partNumber" not in path and path not in lost:
            lost.add(path)
            return "lost"
        return None

    proxy.fault = lose
    lsmkv.backup(db, URL, **store)
    assert len(lost) > 5
    assert restored(tmp_path, store) == dict(db)


def test_bodies_that_are_cut_off_are_noticed(db, tmp_path, proxy, store):
    lsmkv.backup(db, URL, **store)
    cut = set()

    def cut_off(method, path):
        if method == "GET" and "/data/" in path and path not in cut:
            cut.add(path)
            return "cut"
        return None

    proxy.fault = cut_off
    proxy.fault = lambda method, path: "cut" if method == "GET" and "/data/" in path else None
    with pytest.raises((lsmkv.IOError, lsmkv.CorruptionError)):
        lsmkv.restore(URL, tmp_path / "copy", **store)
    assert not (tmp_path / "copy").exists()
    proxy.fault = cut_off
    for _ in range(30):  # each call keeps what has arrived
        try:
            lsmkv.restore(URL, tmp_path / "copy", **store)
            break
        except (lsmkv.IOError, lsmkv.CorruptionError):
            continue
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == dict(db)


KILLED = """
import os, sys, threading
from datetime import timedelta
import lsmkv
threading.Timer(float(sys.argv[1]), lambda: os.kill(os.getpid(), 9)).start()
store = {"storage_options": OPTIONS}
while True:
    WORK
"""


@pytest.mark.parametrize("what", ["backup", "prune", "restore"])
def test_a_killed_process_leaves_the_last_good_version(db, path, tmp_path, proxy, store, what):
    """Killed at ten moments each, while the server takes its time."""
    contents = []
    for edition in range(2):
        db[b"edition"] = b"%d" % edition
        lsmkv.backup(db, URL, **store)
        contents.append(dict(db))
    db[b"edition"] = b"new"
    contents.append(dict(db))
    work = {
        "backup": f"lsmkv.backup({str(path)!r}, {URL!r}, uploads=1, **store)",
        "prune": f"lsmkv.backup({str(path)!r}, {URL!r}, **store); lsmkv.prune_backups({URL!r}, 2, **store)",
        "restore": f"lsmkv.restore({URL!r}, {str(tmp_path / 'dest')!r}, downloads=1, **store); sys.exit(7)",
    }[what]
    for trial in range(10):
        seconds = random.Random(trial).uniform(0.3, 1.5)
        code = KILLED.replace("WORK", work).replace("OPTIONS", repr(options(proxy.port)).replace("datetime.", ""))
        status = subprocess.run([sys.executable, "-c", code, str(seconds)], check=False).returncode
        assert status in (-9, 7)
        if status == 7:
            lsmkv.destroy(tmp_path / "dest")
        assert restored(tmp_path, store) in contents
    lsmkv.backup(db, URL, **store)
    lsmkv.prune_backups(URL, 1, **store)
    assert restored(tmp_path, store) == contents[-1]


TOOL = """
import sys
from lsmkv_tool import __main__
from lsmkv_tool.render import progress
progress.DELAY = progress.EVERY = 0.01
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    "label, held, words",
    [
        ("sending", "PUT", ["backup", "DB", URL]),
        ("receiving", "GET", ["restore", URL, "COPY"]),
        ("removing", "DELETE", ["prune", URL, "--keep=1"]),
    ],
)
def test_the_tool_draws_a_progress_bar(db, path, tmp_path, proxy, store, label, held, words):
    """The server holds a request back until the bar has been seen."""
    for _ in range(2):
        db[b"edition"] = os.urandom(1 << 20)
        db.compact_range()
        lsmkv.backup(db, URL, **store)
    for i in range(10_000):
        db[b"new%06d" % i] = os.urandom(100)
    db.compact_range()
    seen_bar, requests = threading.Event(), itertools.count(1)

    def hold(method, path):
        # Not the first ones: until something has arrived, the size of the work is unknown.
        if method == held and "/data/" in path and (held == "DELETE" or next(requests) > 4):
            seen_bar.wait(10)

    proxy.fault = hold
    given = [f"--store-option={k}={v}" for k, v in options(proxy.port).items() if isinstance(v, str)]
    command = [{"DB": str(path), "COPY": str(tmp_path / "copy")}.get(word, word) for word in words]
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["AWS_ALLOW_HTTP"] = "true"
        os.execv(sys.executable, [sys.executable, "-c", TOOL, *command, *given, "--yes"])
    seen = b""
    with contextlib.suppress(OSError):  # the process has closed its end
        while part := os.read(fd, 65536):
            seen += part
            if re.search(label.encode() + rb" \[[#.]+\] +\d+%", seen):
                seen_bar.set()
    os.close(fd)
    assert os.waitpid(pid, 0)[1] == 0, seen.decode()
    assert seen_bar.is_set(), seen.decode()


def test_fsspec_is_the_other_way_in(db, tmp_path, proxy, s3):
    client = {"endpoint_url": f"http://127.0.0.1:{proxy.port}", "region_name": "us-east-1"}
    store = {"storage_options": {"key": "test", "secret": "test", "client_kwargs": client}}
    version = lsmkv.backup(db, f"fsspec+{URL}", **store)
    db[b"new"] = b"1"
    assert lsmkv.backup(db, f"fsspec+{URL}", **store).sent_bytes < version.bytes / 10
    lsmkv.restore(f"fsspec+{URL}", tmp_path / "copy", version.id, **store)
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert len(copy) == len(db) - 1
    # Both clients see the same repository.
    assert len(lsmkv.backups(URL, storage_options=options(proxy.port))) == 2
    lsmkv.prune_backups(f"fsspec+{URL}", 1, **store)
    assert restored(tmp_path, {"storage_options": options(proxy.port)}) == dict(db)


def test_the_tool_reaches_an_object_store(db, path, tmp_path, proxy, s3):
    given = [f"--store-option={k}={v}" for k, v in options(proxy.port).items() if isinstance(v, str)]
    environment = os.environ | {"AWS_ALLOW_HTTP": "true"}
    for words in (
        ["backup", str(path), URL, "--yes"],
        ["backups", URL],
        ["restore", URL, str(tmp_path / "copy"), "--yes"],
        ["prune", URL, "--keep", "1", "--yes"],
    ):
        command = [sys.executable, "-m", "lsmkv_tool", *words, *given]
        subprocess.run(command, env=environment, check=True)
    with lsmkv.open(tmp_path / "copy", "r") as copy:
        assert dict(copy) == dict(db)
