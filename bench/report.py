"""Figures as a table for people and as JSON for machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bench.machine import Machine
from bench.measurement import Measurement
from bench.registry import Case

_MARKS = {True: "pass", False: "MISS", None: ""}
_HEADINGS = ("measurement", "figure", "baseline", "ratio", "target", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    case: Case
    measurements: tuple[Measurement, ...]
    seconds: float
    # Why the case could not be measured.
    error: str | None = None


def format_table(results: list[CaseResult]) -> str:
    rows = [_HEADINGS]
    heads: dict[int, str] = {}
    notes: dict[int, list[str]] = {}
    for result in results:
        heads[len(rows)] = f"{result.case.name}: {result.case.title} (durability: {result.case.durability})"
        for measurement in result.measurements:
            notes[len(rows)] = _notes(measurement)
            rows.append(_row(measurement))
        if result.error:
            rows.append(("could not be measured", result.error, "", "", "", "ERROR"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = []
    for number, row in enumerate(rows):
        if number in heads:
            lines += ["", heads[number]]
        cells = zip(row, widths, strict=True)
        lines.append("  " + "  ".join(cell.ljust(width) for cell, width in cells).rstrip())
        lines += [f"      {note}" for note in notes.get(number, [])]
    return "\n".join(lines)


def _row(measurement: Measurement) -> tuple[str, ...]:
    ratio = measurement.ratio
    return (
        measurement.name,
        f"{_number(measurement.value)} {measurement.unit}",
        f"{_number(measurement.baseline)} {measurement.baseline_name}" if measurement.baseline is not None else "",
        f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})" if ratio else "",
        f"{'ratio' if ratio else 'figure'} {measurement.target}" if measurement.target else "",
        _MARKS[measurement.passed] + ("" if measurement.steady else "?"),
    )


def _notes(measurement: Measurement) -> list[str]:
    latency = [str(measurement.latency)] if measurement.latency else []
    return latency + ([measurement.note] if measurement.note else [])


def _number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def write_json(path: Path, machine: Machine, results: list[CaseResult], *, quick: bool) -> None:
    document = {
        "machine": machine.as_json(),
        "quick": quick,
        "cases": [
            {
                "name": result.case.name,
                "title": result.case.title,
                "durability": result.case.durability,
                "seconds": round(result.seconds, 3),
                "error": result.error,
                "measurements": [measurement.as_json() for measurement in result.measurements],
            }
            for result in results
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")
