"""Settings of the broker itself."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    # acks=leader promises durability within this time.
    sync_within_ms: int = 1000
    # How often retention, age and compaction are looked at.
    maintenance_interval_ms: int = 30_000
    # How often free space is looked at, and the used shares at which to warn and to refuse writes.
    disk_check_interval_ms: int = 5_000
    disk_warn_percent: int = 85
    disk_refuse_percent: int = 90
    # Sealed segments are read again at this rate to find damage early; 0 turns the scrub off.
    scrub_bytes_per_second: int = 16 << 20
    # Long polls wait this long unless asked otherwise, and never longer than the maximum.
    wait_default_ms: int = 30_000
    wait_max_ms: int = 60_000
    # Messages of one stream read.
    read_limit_default: int = 100
    read_limit_max: int = 1_000
    # Bytes of one stream read or fetch.
    fetch_bytes_default: int = 1 << 20
    fetch_bytes_max: int = 16 << 20
    # Messages of one publish request.
    publish_messages_max: int = 10_000
    # Partitions of `__consumer_offsets` when it is made; which one a group lives in depends on it for ever.
    group_offsets_partitions: int = 8
    # A member that is not heard of for its session timeout is removed; members may choose within the bounds.
    group_session_timeout_ms: int = 30_000
    group_session_timeout_min_ms: int = 100
    group_session_timeout_max_ms: int = 1_800_000
    # Partitions that are not given up within this time are taken.
    group_rebalance_timeout_ms: int = 60_000
    # How often clients are asked to show that they live.
    group_heartbeat_interval_ms: int = 3_000
    # Groups without members are forgotten when unused for this long.
    group_retention_ms: int = 7 * 86_400_000
    # Groups per partition of `__consumer_offsets`, members per group, topics per member.
    groups_max: int = 10_000
    group_members_max: int = 1_000
    group_topics_max: int = 1_000
    # Partitions of one commit, and bytes of the text that may go with an offset.
    commit_partitions_max: int = 10_000
    commit_metadata_bytes_max: int = 4_096
    # How far ahead a message may be scheduled: 7.76 days, the reach of the wheel's four levels.
    delay_max_ms: int = 670_464_000
    # Delays are written down this often, so that a start reads little of the log.
    delay_snapshot_interval_ms: int = 60_000

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be at least {low}, not {getattr(self, name)!r}"
            for name, low in _MINIMA.items()
            if not isinstance(getattr(self, name), int) or getattr(self, name) < low
        ]
        if not problems and not self.disk_warn_percent <= self.disk_refuse_percent <= 100:
            problems.append("disk_warn_percent <= disk_refuse_percent <= 100 must hold")
        if not problems and not (
            self.group_session_timeout_min_ms <= self.group_session_timeout_ms <= self.group_session_timeout_max_ms
        ):
            problems.append("group_session_timeout_ms must lie between its minimum and its maximum")
        if problems:
            raise ConfigurationError("; ".join(problems), problems=problems)


_MINIMA = {
    "sync_within_ms": 1,
    "maintenance_interval_ms": 10,
    "disk_check_interval_ms": 10,
    "disk_warn_percent": 1,
    "disk_refuse_percent": 1,
    "scrub_bytes_per_second": 0,
    "wait_default_ms": 0,
    "wait_max_ms": 0,
    "read_limit_default": 1,
    "read_limit_max": 1,
    "fetch_bytes_default": 1,
    "fetch_bytes_max": 1,
    "publish_messages_max": 1,
    "group_offsets_partitions": 1,
    "group_session_timeout_ms": 1,
    "group_session_timeout_min_ms": 1,
    "group_session_timeout_max_ms": 1,
    "group_rebalance_timeout_ms": 1,
    "group_heartbeat_interval_ms": 1,
    "group_retention_ms": 1,
    "groups_max": 1,
    "group_members_max": 1,
    "group_topics_max": 1,
    "commit_partitions_max": 1,
    "commit_metadata_bytes_max": 0,
    "delay_max_ms": 1,
    "delay_snapshot_interval_ms": 10,
}
