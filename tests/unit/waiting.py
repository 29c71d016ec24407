"""Waiting for background work and for other threads."""

import threading
import time


def wait_until(done, limit=30.0):
    """Poll until `done()`; fail after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, "what the test waits for never happened"
        time.sleep(0.002)


def run_elsewhere(work):
    """Run `work` in a thread of its own and wait for it: inside a call, this thread may not start another one."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
