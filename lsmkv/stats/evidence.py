"""How sure an observed rate is: an interval for it, and the evidence that it is above its design."""

from __future__ import annotations

import math

Z95 = 1.959963984540054

# Of the designed rate. Up to TOLERATED times it a filter counts as healthy. Evidence grows fastest at RAISED times it.
TOLERATED = 1.1
RAISED = 3.0
# A healthy filter ever reaches this evidence at most once in a thousand runs.
ENOUGH = math.log(1000)


def wilson(hits: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """The 95 % confidence interval of a rate seen `hits` times in `trials`."""
    if trials <= 0:
        return (0.0, 1.0)
    p = hits / trials
    centre = p + z * z / (2 * trials)
    spread = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    low = 0.0 if hits == 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if hits == trials else min(1.0, (centre + spread) / scale)
    return (low, high)


def evidence_of_excess(hits: int, expected: float) -> float:
    """The logarithm of a likelihood ratio: `hits` at RAISED times the designed rate against TOLERATED times it.

    `expected` is the sum of the designed rates of all trials. Over the trials of a healthy filter the ratio is a
    supermartingale that starts at 1, because 1 + q(x - 1) <= exp(q(x - 1)) for each trial. By Ville's inequality it
    ever reaches n with a probability of at most 1/n, however often somebody looks.
    """
    return hits * math.log(RAISED / TOLERATED) - expected * (RAISED - TOLERATED)
