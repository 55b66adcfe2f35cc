"""Randomness: nonces, ids, jitter."""

from __future__ import annotations

import random
import secrets
from typing import Protocol


class Entropy(Protocol):
    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes, for ids and nonces."""
        ...

    def uniform(self, low: float, high: float) -> float:
        """A number between `low` and `high`, for jitter."""
        ...


class OsEntropy:
    """The kernel's generator."""

    random_bytes = staticmethod(secrets.token_bytes)

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)
