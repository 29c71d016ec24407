"""Target ratios: a peer's time per operation divided by lsmkv's, by the label of the workload."""

from __future__ import annotations

TARGETS: dict[str, dict[str, float]] = {
    "fillseq": {"rocksdb": 4, "leveldb": 4, "lmdb": 2},
    "fillrandom": {"rocksdb": 4, "leveldb": 4, "lmdb": 2.5},
    "fillbatch": {"rocksdb": 5, "leveldb": 5, "lmdb": 1.5},
    "overwrite": {"rocksdb": 4, "leveldb": 4, "lmdb": 2.5},
    "readrandom": {"rocksdb": 3, "leveldb": 4, "lmdb": 1.5},
    "readmissing": {"rocksdb": 1.6, "leveldb": 3, "lmdb": 3},
    "readhot": {"rocksdb": 3, "leveldb": 4, "lmdb": 1.5},
    "readseq": {"rocksdb": 2, "leveldb": 2, "lmdb": 1},
    "readreverse": {"rocksdb": 2, "leveldb": 2, "lmdb": 1},
    "seekrandom": {"rocksdb": 2.5, "leveldb": 2, "lmdb": 1},
    "multireadrandom": {"rocksdb": 6, "leveldb": 6, "lmdb": 2},
    "readwhilewriting": {"rocksdb": 3, "leveldb": 3},
    "deleterandom": {"rocksdb": 4, "leveldb": 4, "lmdb": 2.5},
    **{f"ycsb{letter}": {"rocksdb": 3, "leveldb": 3, "lmdb": 1.3} for letter in "abcdf"},
    "ycsbe": {"rocksdb": 2, "leveldb": 2, "lmdb": 1},
    "fillsync (1 thread)": {"rocksdb": 1, "leveldb": 1, "lmdb": 1},
    "fillsync (8 threads)": {"rocksdb": 1.5, "leveldb": 1.5, "lmdb": 1},
    "compact": {"rocksdb": 1.5, "leveldb": 1.5},
    "fillrandom (10M sustained)": {"rocksdb": 3, "leveldb": 3},
    "readrandom (10M cache 1/8)": {"rocksdb": 1.5, "leveldb": 1.5},
}
