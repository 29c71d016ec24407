"""Waiting for background work."""

import time


def wait_until(done, limit=30.0):
    """Poll until `done()`; fail after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, "what the test waits for never happened"
        time.sleep(0.002)
