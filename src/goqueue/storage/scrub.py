"""The scrub: sealed segments are read again and again, so that damage is found before a reader finds it.

`Scrubber.next_step` and `finish` belong to the log's owner; `ScrubStep.run` reads one segment and may run anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.storage.damage import Examination
from goqueue.storage.log import Log
from goqueue.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class ScrubStep:
    segment: Segment
    end_offset: int
    # Of the log, when the step was chosen.
    truncations: int

    @property
    def byte_count(self) -> int:
        """What the step will read; a runner keeps to its rate with this."""
        return self.segment.size_bytes

    def run(self) -> Examination:
        return self.segment.examine(self.end_offset)


class Scrubber:
    """Walks over the sealed segments of one log, round after round."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next_base = -1
        self.rounds = 0
        self.scrubbed_bytes = 0

    def next_step(self) -> ScrubStep | None:
        """The next sealed segment, or None at the end of a round."""
        for segment in self._log.sealed_segments:
            if segment.base_offset > self._next_base:
                self._next_base = segment.base_offset
                return ScrubStep(segment, segment.next_offset, self._log.truncations)
        self._next_base = -1
        self.rounds += 1
        return None

    def finish(self, step: ScrubStep, found: Examination) -> None:
        """Take the result into account, unless retention, compaction or a truncation has changed the segment
        meanwhile."""
        self.scrubbed_bytes += step.byte_count
        valid = step.truncations == self._log.truncations and step.segment in self._log.sealed_segments
        if valid and found.damages:
            step.segment.rebuild_indexes(found)
            self._log.note_damages(found.damages)

    def run_round(self) -> None:
        """Scrub every sealed segment now, in this thread."""
        while (step := self.next_step()) is not None:
            self.finish(step, step.run())
