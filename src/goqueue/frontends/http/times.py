"""Durations and times in requests; the forms are those of `goqueue.model.times`, which the command line shares."""

from goqueue.model.times import format_duration, parse_duration_ms, parse_time_ns

__all__ = ["format_duration", "parse_duration_ms", "parse_time_ns"]
