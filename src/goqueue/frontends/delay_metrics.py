"""Metrics of delayed messages."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from goqueue.broker import BrokerApi
from goqueue.broker.delays import LATENESS_BUCKETS_MS

_COUNTERS = (
    ("scheduled", "Messages accepted with a delay since the start."),
    ("released", "Delayed messages released since the start."),
    ("cancelled", "Delayed messages cancelled since the start."),
    ("rescheduled", "Delayed messages given another time since the start."),
    ("expired", "Delayed messages found to be gone from the log."),
    ("unreadable", "Attempts to release a message whose bytes are damaged."),
)


def delay_families(broker: BrokerApi) -> Iterator[Metric]:
    counts = broker.delays.counts
    yield GaugeMetricFamily(
        "goqueue_broker_delay_pending", "Messages that wait for their time.", value=broker.delays.pending_count()
    )
    for name, text in _COUNTERS:
        yield CounterMetricFamily(f"goqueue_broker_delay_{name}", text, value=getattr(counts, name))
    lateness = HistogramMetricFamily(
        "goqueue_broker_delay_lateness_seconds", "Time from a message's due time to its release."
    )
    total, buckets = 0, []
    bounds = [*(str(bound / 1000) for bound in LATENESS_BUCKETS_MS), "+Inf"]
    for bound, count in zip(bounds, counts.lateness, strict=True):
        total += count
        buckets.append((bound, float(total)))
    lateness.add_metric([], buckets, counts.lateness_ms / 1000)
    yield lateness
