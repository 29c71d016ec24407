"""Filters as they are stored."""

from libc.string cimport memset

from lsmkv_ext.filter.curve cimport FILTER_MAX_MILLIBITS, filter_designed_fpr, filter_fpr
from lsmkv_ext.filter.fuse cimport FUSE_MAX_SHIFT, fuse_fpr, fuse_geometry_fits
from lsmkv_ext.filter.kernel cimport FILTER_BLOCK_BYTES, FILTER_MAX_K, filter_fill_ratio, filter_size
from lsmkv_ext.filter.prefix cimport FILTER_PREFIX_LENGTHS, filter_prefix_valid
from lsmkv_ext.port.codecs cimport xxh3
from lsmkv_ext.port.coding cimport get_u32, get_u64, put_u32, put_u64

cdef enum:
    MAGIC = 0x46564B4C                # "LKVF"
    OFFSET_BITS_SUM = 48
    OFFSET_HEADER_SUM = 56

cdef uint64_t BITS_SUM_SEED = 0x6269747366696C74ULL
cdef uint64_t HEADER_SUM_SEED = 0x68656164666C7472ULL


cdef void filter_encode_header(const FilterC* f, char* out) noexcept nogil:
    memset(out, 0, FILTER_HEADER_SIZE)
    put_u32(out, MAGIC)
    out[4] = FILTER_VERSION
    out[5] = <char>filter_kind(f)
    out[6] = FILTER_HASH_XXH3
    out[7] = <char>f.k
    put_u64(out + 8, f.n_blocks)
    put_u64(out + 16, f.n_keys)
    put_u64(out + 24, f.seed)
    put_u32(out + 32, f.millibits)
    if f.fuse.width:
        out[36] = <char>min(f.level, <uint32_t>255)
        out[37] = <char>f.fuse.shift
        out[38] = <char>f.fuse.attempt
        out[39] = 0 if f.fuse.positions == 3 else <char>f.fuse.positions
    else:
        put_u32(out + 36, f.level)
    put_u32(out + 40, f.prefix_kind)
    put_u32(out + 44, f.prefix_arg)
    if f.n_blocks:
        put_u64(out + OFFSET_BITS_SUM, xxh3(f.bits, filter_size(f), BITS_SUM_SEED))
    put_u64(out + OFFSET_HEADER_SUM, xxh3(out, OFFSET_HEADER_SUM, HEADER_SUM_SEED))


cdef int filter_kind(const FilterC* f) noexcept nogil:
    if f.n_blocks == 0:
        return FILTER_KIND_NONE
    return FILTER_KIND_FUSE if f.fuse.width else FILTER_KIND_BLOCKED


cdef int _decode_fuse(const char* header, FilterC* f) noexcept nogil:
    cdef uint64_t segments
    f.level = <uint8_t>header[36]
    f.fuse.shift = <uint8_t>header[37]
    f.fuse.attempt = <uint8_t>header[38]
    f.fuse.width = <uint8_t>header[7]
    f.fuse.positions = <uint8_t>header[39] if header[39] else 3
    if header[39] == 3 or f.fuse.shift > FUSE_MAX_SHIFT:
        return FILTER_BAD_GEOMETRY
    segments = f.n_blocks >> f.fuse.shift
    if segments < f.fuse.positions or segments - f.fuse.positions + 1 > <uint32_t>-1:
        return FILTER_BAD_GEOMETRY
    f.fuse.segments = <uint32_t>(segments - f.fuse.positions + 1)
    return FILTER_OK if fuse_geometry_fits(&f.fuse, f.n_blocks) else FILTER_BAD_GEOMETRY


cdef int _decode_header(const char* header, size_t header_size, FilterC* f) noexcept nogil:
    """Fills the parameters. FILTER_OK where their checksum holds and they make sense."""
    if header_size < FILTER_HEADER_SIZE:
        return FILTER_BAD_LENGTH
    if get_u64(header + OFFSET_HEADER_SUM) != xxh3(header, OFFSET_HEADER_SUM, HEADER_SUM_SEED):
        return FILTER_BAD_CHECKSUM
    if get_u32(header) != MAGIC or header[4] != FILTER_VERSION or header[6] != FILTER_HASH_XXH3:
        return FILTER_UNKNOWN
    f.k = <uint8_t>header[7]
    f.n_blocks = get_u64(header + 8)
    f.n_keys = get_u64(header + 16)
    f.seed = get_u64(header + 24)
    f.millibits = get_u32(header + 32)
    f.level = get_u32(header + 36)
    f.prefix_kind = get_u32(header + 40)
    f.prefix_arg = get_u32(header + 44)
    if header[5] == FILTER_KIND_NONE:
        return FILTER_ABSENT
    if header[5] != FILTER_KIND_BLOCKED and header[5] != FILTER_KIND_FUSE:
        return FILTER_UNKNOWN
    if f.prefix_kind > FILTER_PREFIX_LENGTHS:
        return FILTER_UNKNOWN
    if f.n_blocks == 0 or f.millibits > FILTER_MAX_MILLIBITS:
        return FILTER_BAD_GEOMETRY
    if header[5] == FILTER_KIND_FUSE:
        if _decode_fuse(header, f) != FILTER_OK:
            return FILTER_BAD_GEOMETRY
    elif f.k == 0 or f.k > FILTER_MAX_K:
        return FILTER_BAD_GEOMETRY
    if not filter_prefix_valid(f.prefix_kind, f.prefix_arg):
        return FILTER_BAD_GEOMETRY
    return FILTER_OK


cdef int _check_bits(const char* header, const uint8_t* bits, uint64_t bits_size, const FilterC* f) noexcept nogil:
    if bits == NULL:
        return FILTER_BAD_LENGTH
    if f.fuse.width:
        if bits_size != filter_size(f):
            return FILTER_BAD_LENGTH
    elif bits_size % FILTER_BLOCK_BYTES != 0 or bits_size // FILTER_BLOCK_BYTES != f.n_blocks:
        return FILTER_BAD_LENGTH
    if get_u64(header + OFFSET_BITS_SUM) != xxh3(bits, bits_size, BITS_SUM_SEED):
        return FILTER_BAD_CHECKSUM
    return FILTER_OK


cdef void filter_decode(
    const char* header, size_t header_size, const uint8_t* bits, uint64_t bits_size, FilterC* f
) noexcept nogil:
    memset(f, 0, sizeof(FilterC))
    f.problem = _decode_header(header, header_size, f)
    if f.problem == FILTER_ABSENT and bits_size != 0:
        f.problem = FILTER_BAD_LENGTH
    if f.problem == FILTER_OK:
        f.problem = _check_bits(header, bits, bits_size, f)
    if f.problem == FILTER_OK:
        f.bits = bits
        f.usable = 1
        f.designed_fpr = fuse_fpr(f.k) if f.fuse.width else filter_fpr(f.n_keys, f.n_blocks, f.k)


cdef const char* filter_problem_text(int problem) noexcept nogil:
    if problem == FILTER_OK:
        return "ok"
    if problem == FILTER_ABSENT:
        return "absent"
    if problem == FILTER_BAD_LENGTH:
        return "bad length"
    if problem == FILTER_BAD_CHECKSUM:
        return "bad checksum"
    if problem == FILTER_UNKNOWN:
        return "unknown version, kind or hash"
    return "impossible geometry"


cdef const char* filter_kind_text(const FilterC* f) noexcept nogil:
    if f.n_blocks == 0:
        return "none"
    return "fuse" if f.fuse.width else "bloom"


def describe_filter(const unsigned char[::1] header not None, const unsigned char[::1] bits not None):
    """Return the parameters of a stored filter, and whether it is usable (`problem` is "ok") or why not."""
    cdef FilterC f
    cdef size_t header_size = <size_t>header.shape[0], bits_size = <size_t>bits.shape[0]
    filter_decode(
        <const char*>&header[0] if header_size else NULL, header_size, &bits[0] if bits_size else NULL, bits_size, &f
    )
    return {
        "kind": filter_kind_text(&f).decode(), "problem": filter_problem_text(f.problem).decode(), "usable": bool(f.usable),
        "n_blocks": f.n_blocks,
        "n_keys": f.n_keys, "seed": f.seed, "k": f.k, "millibits": f.millibits, "level": f.level,
        "prefix_kind": f.prefix_kind, "prefix_arg": f.prefix_arg, "fill_ratio": filter_fill_ratio(&f),
        "designed_fpr": filter_designed_fpr(&f),
    }
