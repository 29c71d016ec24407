"""Jobs of the data plane."""

import sys
import threading
import time

import lsmkv
from lsmkv_ext.compaction.job import FileNumbers, Job
from lsmkv_ext.table.table import Table


def make_table(path, count, step, value=b"v" * 40):
    with lsmkv.SSTWriter(path) as writer:
        for i in range(0, count, step):
            writer.put(b"%012d" % i, value)
    return Table(path, int(path.stem))


def test_a_job_needs_the_gil_neither_for_its_first_byte_nor_for_its_last(tmp_path):
    """While a job merges, this thread computes in pure Python and never releases the GIL."""
    inputs = [
        make_table(tmp_path / "000001.sst", 300_000, 2),
        make_table(tmp_path / "000002.sst", 300_000, 3),
    ]
    job = Job(inputs, directory=str(tmp_path), numbers=FileNumbers(3), output_level=1, below=[])
    results = []
    worker = threading.Thread(target=lambda: results.append(job.run()))
    before = sys.getswitchinterval()
    worker.start()
    while not job.progress["entries_done"]:
        time.sleep(0)
    sys.setswitchinterval(1e6)
    try:
        began = job.progress["entries_done"]
        deadline = time.monotonic() + 60
        # The one output counts as written when it is finished and synced.
        while not job.progress["bytes_written"] and time.monotonic() < deadline:
            pass
        ended = job.progress
    finally:
        sys.setswitchinterval(before)
    worker.join()
    assert began < ended["entries_done"] == 200_000
    assert ended["bytes_written"] == results[0]["bytes_written"] > 0


def test_outputs_are_cut_where_they_overlap_much_of_the_level_after_next(tmp_path):
    """So that moving one of them on later does not rewrite half of that level."""
    source = make_table(tmp_path / "000001.sst", 40_000, 1)
    below = [(b"%012d" % i, b"%012d" % (i + 999), 1 << 20) for i in range(0, 40_000, 1000)]

    def outputs(numbers, **limits):
        job = Job([source], directory=str(tmp_path), numbers=numbers, output_level=1, below=[], **limits)
        return job.run()["outputs"]

    assert len(outputs(FileNumbers(10), target_file_size=256 << 10, grandparents=below)) == 1
    cut = outputs(FileNumbers(20), target_file_size=256 << 10, grandparents=below, max_grandparent_overlap=10 << 20)
    assert len(cut) > 1
    for output in cut:
        overlap = [g for g in below if g[0] <= output.largest and g[1] >= output.smallest]
        assert len(overlap) <= 13  # the ten, the one that is more than that, and both ends
