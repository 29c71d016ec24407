"""Bits per key, k, and the false positive rate of a blocked filter."""

from libc.math cimport exp, lgamma, log, log1p, sqrt

from lsmkv_ext.filter.fuse cimport fuse_fpr
from lsmkv_ext.filter.kernel cimport (
    FILTER_BLOCK_BITS,
    FILTER_BLOCK_BYTES,
    FILTER_MAX_K,
    filter_count_ones,
    lsm_filter_popcount,
)

# K_FROM[i] is the smallest millibits for which k = i + 2: the smallest k whose rate is within 3 % of the best k's.
# tests/unit/filter/test_filter_curve.py checks the table against the curve.
cdef uint32_t[15] K_FROM
K_FROM[:] = [2240, 3840, 5480, 7170, 8950, 10840, 12890, 15100, 17540, 20230, 23240, 26600, 30390, 34690, 39600]


# --- geometry --------------------------------------------------------------------------------------------------------

cdef uint32_t filter_millibits(double bits_per_key) except? 0:
    if not 0 < bits_per_key <= FILTER_MAX_MILLIBITS // 1000:
        raise ValueError(
            f"bits_per_key must be above 0 and at most {FILTER_MAX_MILLIBITS // 1000}, not {bits_per_key}"
        )
    cdef uint32_t millibits = <uint32_t>(bits_per_key * 1000 + 0.5)
    return millibits if millibits else 1


cdef uint64_t filter_blocks_for(uint64_t n_keys, uint32_t millibits) noexcept nogil:
    if millibits == 0:
        return 0
    if n_keys > (<uint64_t>-1) // millibits - 511999:
        return 0
    cdef uint64_t blocks = (n_keys * millibits + 511999) // 512000
    return blocks if blocks else 1


cdef uint32_t filter_k_for(uint32_t millibits) noexcept nogil:
    cdef uint32_t k = 1
    while k < FILTER_MAX_K and millibits >= K_FROM[k - 1]:
        k += 1
    return k


# --- rates -----------------------------------------------------------------------------------------------------------

cdef double _mean_over_loads(double load, uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil:
    """Sum over j of P(a block has j keys) x P(k random bits of such a block are all set).

    P(j keys) is binomial where n_keys is given, Poisson with mean `load` where it is 0. `need[i]` is the probability that i given
    bits are all set so far; one more set bit is one of them with probability i/512.
    """
    cdef double need[FILTER_MAX_K + 1]
    cdef double distinct[FILTER_MAX_K + 1]
    cdef double total = 0, hit, log_p, log_q
    cdef double size = FILTER_BLOCK_BITS
    cdef uint64_t j, last
    cdef uint32_t i, _t
    if load > 4096:
        return 1.0
    for i in range(k + 1):
        need[i] = distinct[i] = 0
    need[0] = distinct[0] = 1
    for _t in range(k):                         # distinct[i]: k random bits are i distinct ones
        for i in range(k, 0, -1):
            distinct[i] = distinct[i] * i / size + distinct[i - 1] * (size - i + 1) / size
        distinct[0] = 0
    last = <uint64_t>(load + 12 * sqrt(load) + 20)
    if n_keys and last > n_keys:
        last = n_keys
    log_p = log(1.0 / n_blocks) if n_blocks else 0
    log_q = log1p(-1.0 / n_blocks) if n_blocks > 1 else 0
    for j in range(last + 1):
        hit = 0
        for i in range(1, k + 1):
            hit += distinct[i] * need[i]
        if n_keys == 0:
            total += hit * exp(j * log(load) - load - lgamma(j + 1.0))
        elif n_blocks == 1:
            if j == n_keys:
                total += hit
        else:
            total += hit * exp(lgamma(n_keys + 1.0) - lgamma(j + 1.0) - lgamma(n_keys - j + 1.0)
                               + j * log_p + (n_keys - j) * log_q)
        for _t in range(k):
            for i in range(k, 0, -1):
                need[i] = need[i] * (1 - i / size) + need[i - 1] * i / size
            # need[0] stays 1
    return total if total < 1 else 1.0


cdef double filter_fpr(uint64_t n_keys, uint64_t n_blocks, uint32_t k) noexcept nogil:
    if n_blocks == 0 or k == 0 or k > FILTER_MAX_K:
        return 1.0
    if n_keys == 0:
        return 0.0
    # Binomial only where it differs from Poisson: its logarithms lose digits for large counts.
    return _mean_over_loads(<double>n_keys / n_blocks, n_keys if n_blocks < 1024 else 0, n_blocks, k)


cdef double filter_designed_fpr(const FilterC* f) noexcept nogil:
    if not f.usable:
        return 1.0
    if f.fuse.width:
        return fuse_fpr(f.fuse.width)
    return f.designed_fpr if f.designed_fpr > 0 else filter_fpr(f.n_keys, f.n_blocks, f.k)


cdef double filter_curve(double bits_per_key, uint32_t k) noexcept nogil:
    if bits_per_key <= 0:
        return 1.0
    if k == 0:
        k = filter_k_for(<uint32_t>(min(bits_per_key, 100.0) * 1000 + 0.5))
    return _mean_over_loads(FILTER_BLOCK_BITS / bits_per_key, 0, 0, k)


cdef double filter_keys_of(uint64_t ones, uint64_t n_blocks, uint32_t k) noexcept nogil:
    """With Poisson loads the share of unset bits has the mean exp(-load x (1 - (1 - 1/512)^k))."""
    cdef double bits = <double>n_blocks * FILTER_BLOCK_BITS
    cdef double unset = bits - <double>ones
    cdef double per_key = 1 - exp(k * log1p(-1.0 / FILTER_BLOCK_BITS))
    if unset < 0.5:
        unset = 0.5                       # all set: the estimate is a lower bound
    return -log(unset / bits) / per_key * n_blocks


cdef double filter_block_fpr(uint32_t ones, uint32_t k) noexcept nogil:
    cdef double share = ones / <double>FILTER_BLOCK_BITS, power = 1
    cdef uint32_t _i
    for _i in range(k):
        power *= share
    return power


cdef double filter_estimate_keys(const FilterC* f) noexcept nogil:
    return filter_keys_of(filter_count_ones(f), f.n_blocks, f.k)


cdef double filter_current_fpr(const FilterC* f) noexcept nogil:
    cdef double total = 0
    cdef uint64_t i
    for i in range(f.n_blocks):
        total += filter_block_fpr(lsm_filter_popcount(f.bits + i * FILTER_BLOCK_BYTES), f.k)
    return total / f.n_blocks


# --- for Python ------------------------------------------------------------------------------------------------------

def designed_fpr(double bits_per_key, uint32_t k=0):
    """Return the false positive rate of a full filter with this many bits per key; k = 0 takes `k_for(bits_per_key)`."""
    if not bits_per_key >= 0:
        raise ValueError(f"bits_per_key must not be negative, not {bits_per_key}")
    if k > FILTER_MAX_K:
        raise ValueError(f"k must be at most {FILTER_MAX_K}, not {k}")
    cdef double rate
    with nogil:
        rate = filter_curve(bits_per_key, k)
    return rate


def fpr_for(uint64_t n_keys, uint64_t n_blocks, uint32_t k):
    """Return the false positive rate of n_keys keys in n_blocks blocks of 512 bits with k bits per key."""
    cdef double rate
    with nogil:
        rate = filter_fpr(n_keys, n_blocks, k)
    return rate


def bits_for_fpr(double fpr):
    """Return the fewest bits per key (a multiple of 0.001) whose designed rate is at most `fpr`."""
    if not 0 < fpr <= 1:
        raise ValueError(f"the false positive rate must be above 0 and at most 1, not {fpr}")
    cdef uint32_t low = 0, high = FILTER_MAX_MILLIBITS, middle
    if filter_curve(high / 1000.0, 0) > fpr:
        raise ValueError(f"no filter of at most {FILTER_MAX_MILLIBITS // 1000} bits per key reaches {fpr}")
    while high - low > 1:
        middle = (low + high) // 2
        if filter_curve(middle / 1000.0, 0) <= fpr:
            high = middle
        else:
            low = middle
    return 0.0 if fpr == 1 else high / 1000.0


def k_for(double bits_per_key):
    """Return how many bits a filter with this many bits per key sets for a key."""
    return filter_k_for(filter_millibits(bits_per_key))


def blocks_for(uint64_t n_keys, double bits_per_key):
    """Return the number of 64-byte blocks of a filter for n_keys keys."""
    return filter_blocks_for(n_keys, filter_millibits(bits_per_key))
