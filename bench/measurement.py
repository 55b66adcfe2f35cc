"""What a case reports: a figure, what it was compared with in the same run, and the target it should reach."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A bound for the ratio where there is a baseline, for the figure itself where there is none."""

    at_least: float | None = None
    at_most: float | None = None

    def met_by(self, figure: float) -> bool:
        return (self.at_least is None or figure >= self.at_least) and (self.at_most is None or figure <= self.at_most)

    def __str__(self) -> str:
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ours against the baseline of the same round; the median of the rounds and how far they lie apart."""

    median: float
    # A quarter of the rounds lies below `low`, a quarter above `high`.
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], baseline: Sequence[float]) -> Ratio:
        rounds = [a / b for a, b in zip(ours, baseline, strict=True)]
        low, median, high = statistics.quantiles(rounds, n=4, method="inclusive") if len(rounds) > 1 else rounds * 3
        return cls(median=median, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float

    @classmethod
    def of(cls, samples_ns: Sequence[int]) -> Latency:
        ordered = sorted(samples_ns)
        p50, p99, p999 = (ordered[int(len(ordered) * share)] / 1e3 for share in (0.5, 0.99, 0.999))
        return cls(p50_us=p50, p99_us=p99, p999_us=p999, max_us=ordered[-1] / 1e3)

    def __str__(self) -> str:
        return f"p50 {self.p50_us:.1f} p99 {self.p99_us:.1f} p99.9 {self.p999_us:.1f} max {self.max_us:.0f} us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    name: str
    value: float
    unit: str
    # The same figure of the baseline, and what the baseline is.
    baseline: float | None = None
    baseline_name: str = ""
    ratio: Ratio | None = None
    latency: Latency | None = None
    target: Target | None = None
    note: str = ""

    @classmethod
    def against(
        cls, name: str, ours: Sequence[float], baseline: Sequence[float], *, unit: str, baseline_name: str, **more: Any
    ) -> Measurement:
        """Medians of interleaved rounds; the ratio is taken round by round, so that a slow minute hits both sides."""
        return cls(
            name=name,
            value=statistics.median(ours),
            unit=unit,
            baseline=statistics.median(baseline),
            baseline_name=baseline_name,
            ratio=Ratio.of(ours, baseline),
            **more,
        )

    @property
    def passed(self) -> bool | None:
        """None when there is no target."""
        if self.target is None:
            return None
        return self.target.met_by(self.ratio.median if self.ratio else self.value)

    @property
    def steady(self) -> bool:
        """Whether the middle half of the rounds is on one side of the target; otherwise the verdict is half luck."""
        if self.target is None or self.ratio is None:
            return True
        return self.target.met_by(self.ratio.low) == self.target.met_by(self.ratio.high)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed, "steady": self.steady}
