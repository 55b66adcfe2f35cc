"""`python -m bench [names...] [--quick] [--json FILE]`: run cases, print a table, write the figures."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path

from bench.machine import REPOSITORY, Machine
from bench.measurement import Measurement
from bench.registry import Case, select
from bench.report import CaseResult, format_table, write_json
from bench.workspace import Workspace

RESULTS = REPOSITORY / "bench" / "results"


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    try:
        cases = select(options.names)
    except LookupError as error:
        print(f"bench: {error.args[0]}", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{case.name:28} {case.title}" for case in cases))
        return 0
    workspace = Workspace(options.directory, quick=options.quick)
    try:
        machine = Machine.describe(workspace.path)
        results = [_run(case, workspace) for case in cases]
    finally:
        workspace.close()
    print(machine)
    if options.quick:
        print("quick run: sizes are too small for the figures to mean anything")
    print(format_table(results))
    target = options.json or RESULTS / f"{machine.started_at.replace(':', '')}-{machine.commit}.json"
    write_json(target, machine, results, quick=options.quick)
    print(f"\nfigures in {target}")
    return 1 if any(result.error for result in results) else 0


def _run(case: Case, workspace: Workspace) -> CaseResult:
    """A case that fails costs its own figures, not those of the others."""
    started = time.monotonic()
    measurements: list[Measurement] = []
    error = None
    workspace.progress(f"{case.name}: {case.title}")
    try:
        measurements.extend(case.run(workspace))
    except Exception as caught:
        traceback.print_exc()
        error = f"{type(caught).__name__}: {caught}"
    workspace.end_progress()
    seconds = time.monotonic() - started
    if workspace.quick:  # its sizes say nothing about a target
        measurements = [replace(measurement, target=None) for measurement in measurements]
    return CaseResult(case=case, measurements=tuple(measurements), seconds=seconds, error=error)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks of GoQueue (docs/benchmarks.md).")
    parser.add_argument("names", nargs="*", help="suites or cases; all of them if none is named")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that the benchmarks run, nothing else")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go (default: bench/results/)")
    parser.add_argument("--directory", default=str(RESULTS), help="a directory on the disk under test")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
