"""`python -m goqueue.testing.simulate_groups`: seeded runs of consumer groups (docs/simulation.md)."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

from goqueue.testing.simulation.group_run import GroupRun

_TRACE_LINES = 30


def failure_of(seed: int) -> tuple[GroupRun, str | None]:
    """Run one seed; the report of its failure, or None."""
    run = GroupRun(seed)
    try:
        run.run()
    except Exception:
        trace = "".join(f"  {line}\n" for line in run.trace[-_TRACE_LINES:])
        return run, f"\nseed {seed} failed\n{trace}{traceback.format_exc()}replay with: make sim-groups SEED={seed}"
    return run, None


def main(arguments: list[str] | None = None) -> int:
    # The deaths of simulated brokers are no news.
    logging.getLogger("goqueue").addHandler(logging.NullHandler())
    parser = argparse.ArgumentParser(prog="python -m goqueue.testing.simulate_groups", description="Simulate groups.")
    parser.add_argument("--seeds", type=int, default=100, help="how many runs")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, default=None, help="one run")
    options = parser.parse_args(arguments)
    seeds = [options.seed] if options.seed is not None else range(options.start, options.start + options.seeds)
    failed, steps, joins = [], 0, 0
    for seed in seeds:
        run, report = failure_of(seed)
        steps, joins = steps + run.step_count, joins + run.joins_checked
        if report is not None:
            failed.append(seed)
            print(report, flush=True)
    result = f"failed {failed}" if failed else "all passed"
    print(f"{len(seeds)} seeds from {seeds[0]}, {steps} steps, {joins} joins compared with the oracle: {result}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
