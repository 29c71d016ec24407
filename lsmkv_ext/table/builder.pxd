# Writes one SSTable, keys in strictly increasing order, without the GIL. Byte grid: docs/format.md, "SSTable".
#
# builder_open, any number of adds, then builder_finish or builder_abandon; both free everything the builder owns. After a failed
# add only builder_abandon is allowed. The caller syncs the directory before it names the file in the manifest.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.builder cimport BlockBuilder
from lsmkv_ext.filter.prefix cimport FILTER_MAX_PREFIXES
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status
from lsmkv_ext.table.format cimport Footer, RangeTombstone
from lsmkv_ext.table.meta cimport TableMetaC
from lsmkv_ext.table.output cimport TableOutput
from lsmkv_ext.values.reader cimport ValueLogC

ctypedef struct BuilderOptions:
    uint64_t seed                  # of the hashes passed to builder_add
    uint32_t block_size            # raw bytes after which a block is cut; 0 = default
    uint32_t restart_interval      # 1..64, rounded down to a power of two; 0 = default
    int compression                # COMPRESSION_*
    uint32_t millibits             # filter bits per key x 1000; 0 = no filter
    uint32_t milliwidth            # average width x 1000 of the fingerprints in fuse filters; 0 = Bloom filters
    uint32_t level                 # that the filter is built for
    bint verify_filter
    uint32_t prefix_kind, prefix_arg
    uint64_t number                # of the file: for status, properties and meta
    uint64_t created_unix
    uint32_t keyspace              # 0: the default one
    const char* keyspace_name      # borrowed until builder_finish
    size_t keyspace_name_len
    ValueLogC** value_logs         # by number; borrowed until builder_finish: those that added entries may point into
    Py_ssize_t n_value_logs

ctypedef struct BuilderC:
    BuilderOptions o
    TableOutput out
    BlockBuilder block
    GrowBuf first_key
    GrowBuf last_key
    GrowBuf last_sep
    GrowBuf index
    uint64_t index_cost            # bytes that the decoded index will take in memory
    bint pending                   # a finished block waits for its separator
    uint64_t pending_size          # of the frame of that block
    uint32_t pending_entries
    GrowBuf hashes                 # uint64_t each
    uint64_t last_prefixes[FILTER_MAX_PREFIXES]   # hashes of the last key's
    int n_last_prefixes
    GrowBuf tombstones             # range tombstones, encoded as in their section, in the order added
    size_t last_tombstone          # offset of the last one
    bint tombstones_unsorted       # they were not added in the order of the section
    Footer footer
    TableMetaC meta                # counted as entries come; complete after builder_finish
    uint64_t key_bytes, value_bytes
    uint64_t n_blocks
    uint64_t filter_blocks         # of a fuse filter the slots
    # stay readable after builder_finish
    uint64_t filter_build_ns, filter_verify_ns

cdef int builder_open(BuilderC* b, const char* path, const BuilderOptions* o, Status* st) noexcept nogil
# Keys strictly increasing: checked (ST_BAD_ARGUMENT). `kind` is ENTRY_*; an expiry is part of the value. A pointer into a value
# log that is not in the options is ST_CORRUPT.
cdef int builder_add(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq,
                     int kind, uint64_t hash, Status* st) noexcept nogil
# For a copy of a table (table/rebuild): frames of blocks from the same offset of the other file, then for each block its index
# entry and the hashes of its keys.
cdef int builder_add_frames(BuilderC* b, const char* frames, size_t n, Status* st) noexcept nogil
cdef int builder_add_block(BuilderC* b, size_t frame_size, uint64_t n_entries, const char* sep, size_t sep_len,
                           Status* st) noexcept nogil
cdef int builder_add_hash(BuilderC* b, const char* key, size_t klen, uint64_t hash, Status* st) noexcept nogil
# start < stop; any order.
cdef int builder_add_range_tombstone(BuilderC* b, const RangeTombstone* r, Status* st) noexcept nogil
# Bytes so far, with the open block and the padding; jobs cut their outputs by it.
cdef uint64_t builder_size(const BuilderC* b) noexcept nogil
# Zeros to write after the index, to keep the memory of opening the file within OPEN_ALLOWANCE. 0 for all but rare tables: very
# long keys over blocks that compress to almost nothing, or a great many range tombstones.
cdef uint64_t builder_padding(const BuilderC* b) noexcept nogil
cdef void builder_drop_filter(BuilderC* b) noexcept nogil          # before builder_finish
# Builds and verifies the filter: a Bloom filter if a fuse filter has too few keys or cannot be built.
# Writes index, filter, range tombstones, properties, footer; fsync, close. *out owns its keys
# (meta_free). On failure the file is removed and *out is empty.
cdef int builder_finish(BuilderC* b, TableMetaC* out, Status* st) noexcept nogil
cdef void builder_abandon(BuilderC* b) noexcept nogil              # close, unlink, free; safe on a zeroed struct
