"""Durations and times as people write them, as whole numbers.

A duration is `250ms`, `5m`, `1h30m` (Go), `PT30S`, `P1DT2H` (ISO 8601) or a whole number of milliseconds. A time is
RFC 3339 with its offset from UTC, or a whole number of milliseconds since 1970.
"""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction

from goqueue.errors import InvalidRequestError

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_GO_PART = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(ns|us|µs|ms|s|m|h|d)", re.ASCII)
_GO = re.compile(rf"(?:{_GO_PART.pattern})+", re.ASCII)
_NUMBER = r"([0-9]{1,18}(?:[.,][0-9]{1,9})?)"
_ISO = re.compile(rf"P(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?", re.ASCII)
_RFC3339 = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9})[0-9]*)?"
    r"([Zz]|[+ -][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
    "d": 86_400_000_000_000,
}
_TIME_NS_MAX = (1 << 63) - 1


def parse_duration_ms(text: str, name: str) -> int:
    """Milliseconds, rounded up so that a short wait does not become none."""
    if _WHOLE.fullmatch(text):
        return int(text)
    total = Fraction(0)
    iso = _ISO.fullmatch(text)
    if _GO.fullmatch(text):
        for number, unit in _GO_PART.findall(text):
            total += Fraction(number) * _UNIT_NS[unit]
    elif iso and any(iso.groups()):
        for number, unit in zip(iso.groups(), "dhms", strict=True):
            total += Fraction((number or "0").replace(",", ".")) * _UNIT_NS[unit]
    else:
        raise InvalidRequestError(f"{name}={text[:40]!r} is not a duration such as 250ms, 1h30m, PT30S or milliseconds")
    return -int(-total // 1_000_000)


def parse_time_ns(text: str, name: str) -> int:
    """Nanoseconds since 1970; anything earlier is 1970, before which nothing was written."""
    nanoseconds = int(text) * 1_000_000 if _WHOLE.fullmatch(text) else _rfc3339_ns(text, name)
    if nanoseconds > _TIME_NS_MAX:
        raise InvalidRequestError(f"{name}={text[:40]!r} is later than any time a record can have")
    return max(nanoseconds, 0)


def _rfc3339_ns(text: str, name: str) -> int:
    match = _RFC3339.fullmatch(text)
    try:
        if match is None:
            raise ValueError(text)
        date, time, fraction, zone = match.groups()
        # A plus sign that was not encoded in a URL arrives as a space.
        moment = datetime.fromisoformat(f"{date}T{time}{zone.upper().replace('Z', '+00:00').replace(' ', '+')}")
        return int(moment.timestamp()) * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    except (ValueError, OverflowError):
        raise InvalidRequestError(
            f"{name}={text[:40]!r} is not a time such as 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None


def format_duration(seconds: float) -> str:
    """The Go form, to the millisecond: 1h2m3.004s."""
    milliseconds = round(seconds * 1000)
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    text = f"{rest / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text
