"""Randomness that repeats: the same seed gives the same ids, nonces and jitter."""

from __future__ import annotations

import random


class SimEntropy:
    """The twin of `OsEntropy`. Give each node its own seed, or two nodes will draw the same ids."""

    __slots__ = ("_random",)

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
