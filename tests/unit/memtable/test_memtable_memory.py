"""How a memtable's index grows."""

import lsmkv


def test_the_index_of_a_memtable_grows_in_one_step_to_what_the_last_one_needed(tmp_path):
    """It was moved at every doubling; and where it began that large, gets beside few writes missed the cache."""
    sizes = []
    with lsmkv.open(tmp_path / "db", write_buffer_size=64 << 20) as db:
        for _ in range(2):
            steps = []
            for i in range(100_000):
                db.put(b"%d" % i, b"")
                if not steps or steps[-1] != db._engine.active.index_slots:
                    steps.append(db._engine.active.index_slots)
            assert db._engine.active.keys == 100_000
            sizes.append(steps)
            db.flush()
        assert len(db) == 100_000
    assert sizes == [[1 << 12, 1 << 14, 1 << 16, 1 << 19], [1 << 12, 1 << 14, 1 << 16, 1 << 18]]
