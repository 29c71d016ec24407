# The bytes of a stored filter: a header of 64 bytes, and the bits. Byte grid: docs/format.md. One encoder and one decoder.

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from lsmkv_ext.filter.kernel cimport FilterC

cdef enum:
    FILTER_HEADER_SIZE = 64
    FILTER_VERSION = 1
    FILTER_KIND_NONE = 0
    FILTER_KIND_BLOCKED = 1
    FILTER_KIND_FUSE = 2
    FILTER_HASH_XXH3 = 1

cdef enum:                    # FilterC.problem
    FILTER_OK = 0
    FILTER_ABSENT = 1
    FILTER_BAD_LENGTH = 2
    FILTER_BAD_CHECKSUM = 3
    FILTER_UNKNOWN = 4        # version, kind or hash
    FILTER_BAD_GEOMETRY = 5

# Writes FILTER_HEADER_SIZE bytes, with the checksum of f.bits. n_blocks == 0 writes the header of an absent filter; fuse.width
# not 0 that of a fuse filter, whose level is at most 255.
cdef void filter_encode_header(const FilterC* f, char* out) noexcept nogil
# Fills *f, which borrows `bits`. A filter that is damaged or unknown is not usable, and `problem` says why; the parameters
# are filled in if the header is sound.
cdef void filter_decode(
    const char* header, size_t header_size, const uint8_t* bits, uint64_t bits_size, FilterC* f
) noexcept nogil
cdef const char* filter_problem_text(int problem) noexcept nogil     # static text
cdef int filter_kind(const FilterC* f) noexcept nogil                # FILTER_KIND_*
cdef const char* filter_kind_text(const FilterC* f) noexcept nogil  # static text: none, bloom, fuse
