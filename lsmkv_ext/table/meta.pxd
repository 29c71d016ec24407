# The metadata of a table, from the builder to the manifest: one C struct, one Python class (TableMeta), one conversion. Both have
# the same fields; docs/format.md, "MANIFEST", explains them.

from libc.stdint cimport uint32_t, uint64_t

from lsmkv_ext.port.growable cimport GrowBuf

ctypedef struct ValueUse:          # the values of one value log that a table points to
    uint64_t number                # of the value log; 0: the one that was written with a table for an ingest
    uint64_t identity
    uint64_t values
    uint64_t bytes                 # with header, chunk table and padding of each
    uint64_t end                   # the offset after the last of them and its chunk table

ctypedef struct TableMetaC:        # zeroed = an empty table
    uint64_t number
    uint64_t size                  # of the file
    uint64_t entries
    uint64_t deletes               # of the entries
    uint64_t range_tombstones
    uint64_t min_seq, max_seq      # over entries and range tombstones; 0, 0 for an empty table
    uint64_t global_seq
    uint64_t raw_bytes             # keys + values
    uint64_t expiring              # entries with an expiry; 0: the next three are 0 too
    uint64_t min_expiry, max_expiry
    uint64_t expiring_bytes        # keys + values of these
    uint64_t data_bytes, index_bytes, filter_bytes
    uint64_t filter_keys           # keys and prefixes added
    uint32_t millibits             # filter bits per key x 1000
    uint32_t k                     # bits set per key, or the width of a fingerprint
    uint32_t filter_kind           # FILTER_KIND_BLOCKED, also without a filter, or FILTER_KIND_FUSE
    uint32_t filter_level          # the level the filter was built for
    GrowBuf smallest               # over entries and range tombstones
    GrowBuf largest
    bint largest_exclusive         # largest is the stop of a range tombstone, not a key
    GrowBuf values                 # ValueUse each, by number
    uint64_t own_log               # number of the value log that an ingested table brought along; 0: none

cdef object meta_object(const TableMetaC* m)               # a TableMeta
cdef void meta_free(TableMetaC* m) noexcept nogil
