"""Benchmark lists with a name: `--suite=table` makes the table of the README."""

from __future__ import annotations

# Fills, then reads of a settled database, then mixed workloads. A title names the row.
TABLE = """
fillseq
fillbatch:batch_size=1000:title=fillbatch
fillsync:writes=1000:threads=1:title=fillsync (1 thread)
fillsync:writes=400:threads=8:title=fillsync (8 threads)
fillrandom
overwrite:distribution=unique:title=overwrite
readrandom:reads=200000:title=warm-up
readrandom:reads=500000:title=readrandom
readmissing:reads=500000:title=readmissing
readhot:reads=500000:title=readhot
multireadrandom:reads=500000:batch_size=100:title=multireadrandom
readseq
readreverse
seekrandom:reads=50000:seek_nexts=10:title=seekrandom
readwhilewriting:reads=200000:rate=20000:title=readwhilewriting
ycsba:reads=200000:title=ycsba
ycsbb:reads=200000:title=ycsbb
ycsbc:reads=200000:title=ycsbc
ycsbd:reads=200000:title=ycsbd
ycsbe:reads=20000:title=ycsbe
ycsbf:reads=200000:title=ycsbf
deleterandom:writes=200000:title=deleterandom
overwrite:writes=500000:distribution=unique:settle=0:title=unsettled
compact
open
"""

FULL = """
fillrandom:title=fillrandom (10M sustained)
readrandom:reads=300000:title=warm-up
readrandom:reads=300000:title=readrandom (10M cache 1/8)
readmissing:reads=300000:title=readmissing
multireadrandom:reads=300000:batch_size=100:title=multireadrandom
readseq:reads=3000000:title=readseq
seekrandom:reads=50000:seek_nexts=10:title=seekrandom
overwrite:writes=2000000:title=overwrite
overwrite:writes=1000000:settle=0:title=unsettled
compact
ycsba:reads=200000:title=ycsba
ycsbe:reads=10000:title=ycsbe
open
"""

SCALE = """
filluniquerandom
readrandom:reads=100000:title=warm-up
readrandom:reads=100000:title=readrandom
readmissing:reads=100000:title=readmissing
seekrandom:reads=30000:seek_nexts=10:title=seekrandom
overwrite:writes=100000:title=overwrite
"""

# Run it once for each --value-size, with --compression=none and =lz4. The second overwrite shows the write
# amplification of a fill and two rounds of overwrites.
BIG = """
bigfill
bigread:title=warm-up
bigread
bigoverwrite
bigoverwrite:title=bigoverwrite (second round)
bigread:title=bigread (after overwrites)
bigfill:final_sync=1:title=bigfill (synced at the end)
bigoverwrite:final_sync=1:title=bigoverwrite (synced at the end)
"""

SUITES = {
    name: ",".join(text.split("\n")).strip(",")
    for name, text in {"table": TABLE, "full": FULL, "scale": SCALE, "big": BIG}.items()
}
# Steps without a row. `unsettled` leaves work for `compact`, which background compaction might have done already.
HIDDEN = {"warm-up", "unsettled"}
