# Allocation, structure check and point reads of a data block. Struct: block/memory.pxd. Byte layout: block/format.pxd.
#
# The reader puts the bytes straight into b.data and calls block_check, which validates the whole structure once. Gets and
# iterators rely on it and do no bounds checks.
#
# Ownership: block_alloc returns the block with one pin. A private block is freed by block_free or by its last unpin; a cached
# block is freed by the cache (cache/block_cache.pxd).
# GIL-protected: a cached block without a pin. It is freed only with the GIL held; a reader may use it until it releases the GIL.

from libc.stdint cimport uint64_t

from lsmkv_ext.block.memory cimport BlockC, Entry

# raw_size bytes, pins = 1, SEG_PRIVATE; NULL if out of memory. `pooled`: from the slab's huge pages, for blocks that stay.
cdef BlockC* block_alloc(size_t raw_size, bint pooled) noexcept nogil
cdef void block_free(BlockC* b) noexcept nogil                      # NULL is fine
# Validates b.data[:raw_size] and fills the struct. Returns NULL, or what is wrong.
cdef const char* block_check(BlockC* b) noexcept nogil
# Gives the pointers with the number 0 the number of a value log. The block is checked, has entry kinds, and is private.
cdef void block_number_pointers(BlockC* b, uint64_t number) noexcept nogil
# 1 found (out.key is NULL: the caller has it), 0 absent. `hash` is with the table's seed.
cdef int block_get(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Prefetches the lines of key and value that block_get will most likely read.
cdef void block_prefetch(const BlockC* b, uint64_t hash) noexcept nogil
# block_get without SIMD: for other CPUs, and for tests.
cdef int block_get_portable(const BlockC* b, const char* key, size_t klen, uint64_t hash, Entry* out) noexcept nogil
# Hashes all keys into `out`, in order. Returns the bytes of all keys. kbuf: max_klen + BLOCK_SLACK bytes.
cdef uint64_t block_hash_keys(const BlockC* b, uint64_t seed, char* kbuf, uint64_t* out) noexcept nogil
