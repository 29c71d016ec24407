from concurrent.futures import ThreadPoolExecutor

import pytest


@pytest.fixture
def in_thread():
    """Runs a call in another thread and returns its result."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda call: pool.submit(call).result()
