"""Metrics of consumer groups: `goqueue_consumer_*`, read from the coordinator when they are asked for.

Groups beyond `groups_max` are left out of the families by group, so that a broker with very many stays scrapable.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from goqueue.broker import BrokerApi
from goqueue.groups import GroupPhase


def group_families(broker: BrokerApi, *, groups_max: int = 1_000) -> Iterator[Metric]:
    found = broker.groups.groups()
    states = GaugeMetricFamily("goqueue_consumer_groups", "Groups by state.", labels=["state"])
    counts = dict.fromkeys(GroupPhase, 0)
    for _, group in found:
        counts[GroupPhase.EMPTY if group.state is None else group.state.phase] += 1
    for state, count in counts.items():
        states.add_metric([str(state)], count)
    yield states
    members = GaugeMetricFamily("goqueue_consumer_group_members", "Members of a group.", labels=["group"])
    generation = GaugeMetricFamily("goqueue_consumer_group_generation", "Generation of a group.", labels=["group"])
    lag = GaugeMetricFamily(
        "goqueue_consumer_lag", "Messages between committed offsets and ends, by topic.", labels=["group", "topic"]
    )
    for name, group in found[:groups_max]:
        members.add_metric([name], len(group.members))
        generation.add_metric([name], 0 if group.state is None else group.state.generation)
        behind: dict[str, int] = {}
        for view in broker.group_offsets.show(name):
            behind[view.topic] = behind.get(view.topic, 0) + view.lag
        for topic, messages in behind.items():
            lag.add_metric([name, topic], messages)
    yield from (members, generation, lag)
    total = broker.groups.rebalance_stats()
    for field, text in (
        ("rebalances", "Generations since the start."),
        ("partitions_moved", "Partitions that changed their owner since the start."),
        ("forced_revocations", "Times that partitions were taken because they were not given up."),
        ("expired_members", "Members removed because nothing was heard of them."),
    ):
        yield CounterMetricFamily(f"goqueue_consumer_{field}", text, value=float(total[field] or 0))
    yield CounterMetricFamily(
        "goqueue_consumer_commits", "Offsets committed since the start.", value=float(broker.group_offsets.commits)
    )
    yield CounterMetricFamily("goqueue_consumer_polls", "Polls by members.", value=float(broker.group_poll.polls))
