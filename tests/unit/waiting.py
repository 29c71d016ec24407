"""Waiting for background work and for other threads."""

import threading
import time


def wait_until(done, limit=30.0):
    """Poll until `done()`; fail after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not done():
        assert time.monotonic() < deadline, "what the test waits for never happened"
        time.sleep(0.002)


def run_threads(count, work):
    """Run `work(0)` to `work(count - 1)` in threads of their own; raise the first error of any of them."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def run_elsewhere(work):
    """Run `work` in a thread of its own and wait for it: inside a call, this thread may not start another one."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
