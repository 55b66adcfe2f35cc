"""Metrics for Prometheus, read from the broker when they are asked for.

Nothing is counted here per message: partitions, logs and servers count what they do, and a scrape adds it up. Requests
of the HTTP port are the exception, one list operation each. Counters by topic end with their topic; topics beyond
`topics_max` share the label `_other`, so that a broker with very many stays scrapable.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from goqueue import __version__
from goqueue.broker import BrokerApi, Partition, Phase
from goqueue.frontends.delay_metrics import delay_families
from goqueue.frontends.group_metrics import group_families

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER_TOPICS = "_other"
LATENCY_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_LE = [*(str(bound) for bound in LATENCY_BUCKETS_S), "+Inf"]


def build_commit() -> str:
    return os.environ.get("GOQUEUE_COMMIT", "unknown")


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    open: int
    accepted: int
    refused: int


@dataclass(slots=True)
class _Latencies:
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * len(_LE))


class RequestCounts:
    """Requests by route, method and status, with how long they took."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._latencies: dict[tuple[str, str], _Latencies] = {}

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        self._requests[key] = self._requests.get(key, 0) + 1
        latencies = self._latencies.get((route, method))
        if latencies is None:
            latencies = self._latencies[route, method] = _Latencies()
        latencies.seconds += seconds
        latencies.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1

    def families(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "goqueue_broker_http_requests", "HTTP requests answered.", labels=["route", "method", "status"]
        )
        for (route, method, status), count in self._requests.items():
            requests.add_metric([route, method, str(status)], count)
        yield requests
        durations = HistogramMetricFamily(
            "goqueue_broker_http_request_duration_seconds",
            "Time from a request's headers to its answer, long polls included.",
            labels=["route", "method"],
        )
        for (route, method), latencies in self._latencies.items():
            total, buckets = 0, []
            for le, count in zip(_LE, latencies.buckets, strict=True):
                total += count
                buckets.append((le, float(total)))
            durations.add_metric([route, method], buckets, latencies.seconds)
        yield durations


@dataclass(slots=True)
class _TopicSums:
    records: int = 0
    published_bytes: int = 0
    fetched_bytes: int = 0
    size_bytes: int = 0
    segments: int = 0
    start_offset: int = 0
    end_offset: int = 0
    syncs: int = 0

    def add(self, partition: Partition) -> None:
        log = partition.log.statistics()
        self.records += partition.published_records
        self.published_bytes += partition.published_bytes
        self.fetched_bytes += partition.fetched_bytes
        self.size_bytes += log.size_bytes
        self.segments += log.segment_count
        self.start_offset += log.log_start_offset
        self.end_offset += log.log_end_offset
        self.syncs += log.sync_count


class Metrics(Collector):
    """Everything there is to measure about one broker and its faces."""

    def __init__(self, broker: BrokerApi, *, per_partition: bool = False, topics_max: int = 1_000) -> None:
        self._broker = broker
        self._per_partition = per_partition
        self._topics_max = topics_max
        self._faces: dict[str, Callable[[], ConnectionCounts]] = {}
        self.requests = RequestCounts()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def watch_connections(self, face: str, counts: Callable[[], ConnectionCounts]) -> None:
        """Show the connections of a face from now on."""
        self._faces[face] = counts

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        yield from self._broker_families()
        yield from self._connection_families()
        yield from self.requests.families()
        yield from self._topic_families()
        yield from delay_families(self._broker)
        yield from self._storage_families()
        yield from group_families(self._broker)
        if self._per_partition:
            yield from self._partition_families()

    # -- families -----------------------------------------------------------------------------------------------

    def _broker_families(self) -> Iterator[Metric]:
        broker = self._broker
        build = GaugeMetricFamily("goqueue_broker_info", "The build that runs.", labels=["version", "commit"])
        build.add_metric([__version__, build_commit()], 1)
        yield build
        phase = GaugeMetricFamily("goqueue_broker_phase", "1 for the phase the broker is in.", labels=["phase"])
        for name in Phase:
            phase.add_metric([str(name)], float(broker.phase is name))
        yield phase
        yield _gauge("goqueue_broker_ready", "1 while the broker takes messages.", float(broker.health().ready))
        yield _gauge("goqueue_broker_uptime_seconds", "Time since the broker was opened.", broker.uptime_s)
        yield _gauge("goqueue_broker_topics", "Topics in the catalog.", len(broker.topics.catalog.topics()))
        yield _gauge("goqueue_broker_partitions", "Partitions this node leads.", len(list(broker.topics.partitions())))

    def _connection_families(self) -> Iterator[Metric]:
        now = GaugeMetricFamily("goqueue_broker_connections", "Open connections.", labels=["face"])
        accepted = CounterMetricFamily("goqueue_broker_connections_accepted", "Connections taken.", labels=["face"])
        refused = CounterMetricFamily("goqueue_broker_connections_refused", "Connections refused.", labels=["face"])
        for face, counts in self._faces.items():
            found = counts()
            now.add_metric([face], found.open)
            accepted.add_metric([face], found.accepted)
            refused.add_metric([face], found.refused)
        yield from (now, accepted, refused)

    def _topic_families(self) -> Iterator[Metric]:
        sums: dict[str, _TopicSums] = {}
        for partition in self._broker.topics.partitions():
            topic = partition.identity.topic
            if topic not in sums and len(sums) >= self._topics_max:
                topic = OTHER_TOPICS
            sums.setdefault(topic, _TopicSums()).add(partition)
        for name, text, attribute in _TOPIC_COUNTERS:
            yield _by_topic(CounterMetricFamily(name, text, labels=["topic"]), sums, attribute)
        for name, text, attribute in _TOPIC_GAUGES:
            yield _by_topic(GaugeMetricFamily(name, text, labels=["topic"]), sums, attribute)

    def _storage_families(self) -> Iterator[Metric]:
        partitions = list(self._broker.topics.partitions())
        guard, house = self._broker.disk_guard, self._broker.maintenance
        damaged = sum(1 for partition in partitions if partition.log.damages)
        failed = sum(1 for partition in partitions if partition.log.failure)
        yield _gauge("goqueue_storage_damaged_partitions", "Partitions with damage on disk.", damaged)
        yield _gauge("goqueue_storage_failed_partitions", "Partitions that take no writes until reopened.", failed)
        yield _gauge("goqueue_storage_disk_used_percent", "Used share of the data disk.", guard.used_percent)
        yield _gauge("goqueue_storage_disk_free_bytes", "Free space on the data disk.", guard.free_bytes)
        yield _counter("goqueue_storage_compactions", "Compactions finished.", house.compactions)
        yield _counter("goqueue_storage_deleted_segments", "Segments removed by retention.", house.deleted_segments)
        yield _counter("goqueue_storage_scrubbed_bytes", "Bytes read again to find damage.", house.scrubbed_bytes)

    def _partition_families(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("goqueue_storage_partition_log_start_offset", "First offset kept.", labels=labels)
        end = GaugeMetricFamily("goqueue_storage_partition_log_end_offset", "Next offset to be written.", labels=labels)
        for partition in self._broker.topics.partitions():
            where = [partition.identity.topic, str(partition.identity.partition)]
            start.add_metric(where, partition.log.log_start_offset)
            end.add_metric(where, partition.log.log_end_offset)
        yield from (start, end)


_TOPIC_COUNTERS = (
    ("goqueue_broker_published_records", "Records published since the start.", "records"),
    ("goqueue_broker_published_bytes", "Bytes published since the start.", "published_bytes"),
    ("goqueue_broker_fetched_bytes", "Bytes read for consumers since the start.", "fetched_bytes"),
    ("goqueue_storage_syncs", "Syncs of the topic's logs since the start.", "syncs"),
)
_TOPIC_GAUGES = (
    ("goqueue_storage_size_bytes", "Bytes in the topic's segments.", "size_bytes"),
    ("goqueue_storage_segments", "Segments of the topic.", "segments"),
    ("goqueue_storage_log_start_offset", "First offsets kept, added over the topic's partitions.", "start_offset"),
    ("goqueue_storage_log_end_offset", "Next offsets, added over the topic's partitions.", "end_offset"),
)


def _by_topic(family: CounterMetricFamily | GaugeMetricFamily, sums: dict[str, _TopicSums], attribute: str) -> Metric:
    for topic, found in sums.items():
        family.add_metric([topic], getattr(found, attribute))
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
