# Writes one SSTable, keys in strictly increasing order, without the GIL. Byte grid: docs/format.md, "SSTable".
#
# Life: builder_open, any number of adds, then builder_finish or builder_abandon; both free everything the builder owns.
# After an add failed only builder_abandon is allowed. The directory is not synced here: the caller does, before it
# names the file in the manifest.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.block.block cimport BlockBuilder
from lsmkv_ext.port.growable cimport GrowBuf
from lsmkv_ext.port.status cimport Status

ctypedef struct BuilderOptions:
    uint64_t seed                  # of the hashes passed to builder_add
    uint32_t block_size            # raw bytes after which a block is cut
    uint32_t restart_interval      # 1..64, rounded down to a power of two; 0 = default
    int compression                # 0 none, 1 lz4
    uint32_t millibits             # filter bits per key x 1000; 0 = no filter
    uint32_t level                 # the filter is built for
    bint verify_filter
    uint32_t prefix_kind, prefix_arg
    uint64_t number                # for status and properties
    uint64_t created_unix

ctypedef struct TableSummary:
    uint64_t file_size
    uint64_t n_entries, n_deletes, n_range_tombstones
    uint64_t raw_bytes             # keys + values
    uint64_t data_bytes, index_bytes, filter_bytes
    uint64_t min_seq, max_seq      # over entries and range tombstones; 0, 0 for an empty table
    uint64_t n_blocks
    uint64_t filter_keys           # keys and prefixes added
    uint32_t millibits, k, level
    uint64_t filter_build_ns, filter_verify_ns
    char* smallest                 # malloc'ed, owned by the summary
    size_t smallest_len
    char* largest
    size_t largest_len
    bint largest_exclusive

ctypedef struct BuilderC:
    BuilderOptions o
    char* path                     # owned
    int fd
    GrowBuf out                    # bytes not yet written
    uint64_t written               # bytes handed to write(2)
    uint64_t flushed               # bytes asked to be on their way to the disk
    BlockBuilder block
    GrowBuf packed                 # compression output
    GrowBuf first_key
    GrowBuf last_key
    GrowBuf last_sep
    GrowBuf index
    uint64_t index_cost            # what the index will take in memory
    bint pending                   # a finished block waits for its separator
    uint64_t pending_size
    uint32_t pending_entries
    GrowBuf hashes                 # uint64_t each
    uint64_t last_prefix_hash
    bint has_prefix
    GrowBuf ranges                 # range tombstones as in their section, in order of arrival
    size_t last_range              # where the last one begins
    bint ranges_unsorted           # that is not their order in the section
    TableSummary s
    uint64_t key_bytes, value_bytes
    uint64_t filter_blocks
    bint any                       # a range tombstone has set the key range

cdef int builder_open(BuilderC* b, const char* path, const BuilderOptions* o, Status* st) noexcept nogil
# Keys strictly increasing: checked (ST_BAD_ARGUMENT).
cdef int builder_add(BuilderC* b, const char* key, size_t klen, const char* val, size_t vlen, uint64_t seq,
                     int is_delete, uint64_t hash, Status* st) noexcept nogil
# For a copy of a table (refilter): framed blocks as they stand in the other file at this very offset, then for each of them
# its place in the index and the hashes of its keys.
cdef int builder_add_frames(BuilderC* b, const char* frames, size_t n, Status* st) noexcept nogil
cdef int builder_add_block(BuilderC* b, size_t frame_size, uint64_t n_entries, const char* sep, size_t sep_len,
                           Status* st) noexcept nogil
cdef int builder_add_hash(BuilderC* b, const char* key, size_t klen, uint64_t hash, Status* st) noexcept nogil
# start < stop; any order.
cdef int builder_add_range_tombstone(BuilderC* b, const char* start, size_t start_len, const char* stop, size_t stop_len,
                                  uint64_t seq, Status* st) noexcept nogil
# Bytes so far, pending and padding, for cutting outputs.
cdef uint64_t builder_size(const BuilderC* b) noexcept nogil
# Zeros to put behind the index, so that the file is no smaller than what its reader may allocate allows (OPEN_ALLOWANCE).
# 0 but for tables of blocks that compress to next to nothing under very long keys, or of a great many range tombstones.
cdef uint64_t builder_padding(const BuilderC* b) noexcept nogil
cdef void builder_drop_filter(BuilderC* b) noexcept nogil          # decided at the end of the file
# Filter built and verified, index, range tombstones, properties, footer, fsync, close. On failure the file is removed.
cdef int builder_finish(BuilderC* b, TableSummary* out, Status* st) noexcept nogil
cdef void builder_abandon(BuilderC* b) noexcept nogil              # close, unlink, free; safe on a zeroed struct
cdef void summary_free(TableSummary* s) noexcept nogil
