"""Operations that read a log in every way it offers, and compare with the model."""

from __future__ import annotations

from collections import deque

from goqueue.errors import OffsetOutOfRangeError
from goqueue.storage import FileRange
from goqueue.testing.simulation.batch_source import MINUTE_NS
from goqueue.testing.simulation.log_model import expect
from goqueue.testing.simulation.log_subject import LogSubject

_HELD_MAX = 4


class LogReading:
    def __init__(self, subject: LogSubject) -> None:
        self._subject = subject
        self._random = subject.random
        # Ranges that a slow consumer still has to send, with the bytes they held when they were located.
        self._held: deque[tuple[FileRange, bytes, int]] = deque(maxlen=_HELD_MAX)

    def forget(self) -> None:
        self._held.clear()

    def read(self) -> str:
        """By offset: whole records, in order, at least one, and no more than asked for unless it is one."""
        subject, model, rng = self._subject, self._subject.model, self._random
        if model.doubt is not None:
            return "skipped"
        end = self._readable_end()
        offset = rng.randint(model.start, end)
        end_offset = rng.randint(offset, end) if rng.random() < 0.3 else None
        bytes_max = rng.choice((1, 100, 1000, 5000, 20_000, 1 << 20))
        if rng.random() < 0.5:
            data = subject.log.read(offset, bytes_max, end_offset)
        else:
            found = subject.log.locate(offset, bytes_max, end_offset)
            data = found.read()
            self._held.append((found, data, subject.truncations))
        self._check_range(data, offset, end if end_offset is None else end_offset, bytes_max)
        return f"{offset} to {end_offset}, {bytes_max} bytes: {len(data)}"

    def _check_range(self, data: bytes, offset: int, end: int, bytes_max: int) -> None:
        length = 0
        for number, entry in enumerate(self._subject.model.between(offset, end)):
            if length == len(data):
                expect(number, f"nothing read at {offset}, where {entry.offset} follows")
                break
            expect(number == 0 or length + len(entry.raw) <= bytes_max, f"more than {bytes_max} bytes: {len(data)}")
            expect(data.startswith(entry.raw, length), f"read at {offset}: {entry.offset} differs")
            length += len(entry.raw)
        expect(length == len(data), f"read at {offset}: {len(data)} bytes, of which {length} are right")

    def read_outside(self) -> str:
        model, rng = self._subject.model, self._random
        if model.doubt is not None:
            return "skipped"
        offset = rng.choice((model.start - 1, self._readable_end() + rng.randrange(1, 5)))
        try:
            self._subject.log.locate(offset, 1000)
        except OffsetOutOfRangeError:
            return f"{offset} refused"
        expect(False, f"offset {offset} was read, outside of {self._subject.where()}")
        return "never"

    def read_held(self) -> str:
        """Retention and compaction take files away; who holds a range still reads the same bytes from it."""
        if not self._held:
            return "skipped"
        found, data, truncations = self._held.popleft()
        if truncations != self._subject.truncations:
            return "truncated"
        expect(found.read() == data, f"a held range of {found.file.path} reads differently")
        return f"{found.file.path} {found.position}"

    def read_by_time(self) -> str:
        subject, model, rng = self._subject, self._subject.model, self._random
        if model.doubt is not None:
            return "skipped"
        timestamp_ns = subject.now_ns() + rng.randrange(-400, 10) * MINUTE_NS
        if model.entries and rng.random() < 0.7:
            timestamp_ns = rng.choice(model.entries).timestamp_ns + rng.choice((-1, 0, 1))
        wanted = model.offset_at_time(timestamp_ns, self._readable_end())
        found = subject.log.offset_at_time(timestamp_ns)
        expect(found == wanted, f"first offset at {timestamp_ns} is {found}, not {wanted}")
        return f"{timestamp_ns}: {found}"

    def compare(self) -> str:
        self._subject.model.check_content(self._subject.log)
        return "same"

    def _readable_end(self) -> int:
        log = self._subject.log
        return log.synced_offset if log.failure else log.log_end_offset
