"""Settings of a log are refused as a whole when any of them makes no sense."""

from __future__ import annotations

import dataclasses

import pytest

from goqueue.errors import ConfigurationError
from goqueue.storage import LogConfig


def test_the_defaults_are_those_of_the_specification() -> None:
    config = LogConfig()
    assert config.segment_bytes == 64 << 20
    assert config.retention_ms == 168 * 3_600_000
    assert config.tombstone_retention_ms == 24 * 3_600_000
    assert config.value_bytes_max == 16 << 20
    assert (config.retention_bytes, config.compact) == (0, False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment_bytes", 4095),
        ("segment_bytes", (2 << 30) + 1),
        ("segment_ms", 0),
        ("retention_ms", -1),
        ("retention_bytes", -1),
        ("value_bytes_max", 0),
        ("value_bytes_max", (16 << 20) + 1),
        ("tombstone_retention_ms", -1),
        ("compaction_keys_max", 0),
        ("segment_bytes", 5000.0),
        ("retention_ms", True),
        ("retention_bytes", "1"),
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        LogConfig(**{name: value})


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        LogConfig(segment_bytes=1, retention_ms=-5, value_bytes_max=0)
    problems = caught.value.context["problems"]
    assert isinstance(problems, list)
    assert len(problems) == 3


def test_settings_cannot_change_under_a_log() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().segment_bytes = 5  # type: ignore[misc]
