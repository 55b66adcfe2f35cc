"""Time. Wall time stamps records and due times; monotonic time measures timeouts."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings that must never be compared with each other."""

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; may jump in both directions."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since an arbitrary point; never goes back."""
        ...


class OsClock:
    """The kernel's clocks."""

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)
