"""Extension modules of the runner: key and value generators, the measured loop, a classic Bloom filter."""
