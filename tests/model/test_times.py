"""Durations and times as text."""

from __future__ import annotations

import pytest

from goqueue.errors import InvalidRequestError
from goqueue.model.times import format_duration, parse_duration_ms, parse_time_ns


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("1500", 1_500),
        ("250ms", 250),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("1m0.25s", 60_250),
        ("2d", 172_800_000),
        ("1us", 1),
        ("1µs", 1),
        ("1ns", 1),
        ("0s", 0),
        ("PT30S", 30_000),
        ("PT1M30.5S", 90_500),
        ("PT0,5S", 500),
        ("P1DT2H", 93_600_000),
        ("P1D", 86_400_000),
    ],
)
def test_durations_are_go_iso_or_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text, "wait") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "-1", "1.5", "5 m", "m", "5x", "P", "PT", "P1DT", "T5S", "1h30", "٣s", "9" * 30 + "s"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="wait"):
        parse_duration_ms(text, "wait")


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000_000_000),
        ("2023-11-14t22:13:20z", 1_700_000_000_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000_000_000),
        ("2023-11-14T23:13:20 01:00", 1_700_000_000_000_000_000),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20.1234567899Z", 1_700_000_000_123_456_789),
        ("1969-12-31T23:59:59Z", 0),
    ],
)
def test_times_are_rfc_3339_or_milliseconds(text: str, nanoseconds: int) -> None:
    assert parse_time_ns(text, "timestamp") == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.0014, "0.001s"), (61.5, "1m1.5s"), (3_723.004, "1h2m3.004s"), (86_400, "24h0m0s")],
)
def test_a_duration_is_shown_in_the_form_it_is_read(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration_ms(text, "uptime") == round(seconds * 1000)
