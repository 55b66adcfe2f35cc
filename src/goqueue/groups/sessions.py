"""Who has been heard of lately. Not durable: after a restart every session begins anew.

Times are milliseconds of a monotonic clock that the caller reads. A heartbeat only moves a deadline; the queue of
deadlines is put right when one of them comes up.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

# A group and the id of a member.
MemberKey = tuple[str, str]


@dataclass(slots=True)
class Session:
    timeout_ms: int
    deadline_ms: int
    # The newest generation the member has used; an older one is from the past of that member.
    generation: int


class Sessions:
    def __init__(self) -> None:
        self._sessions: dict[MemberKey, Session] = {}
        self._queue: list[tuple[int, MemberKey]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: MemberKey) -> Session | None:
        return self._sessions.get(key)

    def begin(self, key: MemberKey, *, timeout_ms: int, generation: int, now_ms: int) -> None:
        self._sessions[key] = Session(timeout_ms, now_ms + timeout_ms, generation)
        heapq.heappush(self._queue, (now_ms + timeout_ms, key))

    def touch(self, key: MemberKey, now_ms: int, generation: int) -> None:
        session = self._sessions[key]
        session.deadline_ms = now_ms + session.timeout_ms
        session.generation = max(session.generation, generation)

    def end(self, key: MemberKey) -> None:
        self._sessions.pop(key, None)

    @property
    def next_deadline_ms(self) -> int | None:
        """Not later than the next expiry; it may be earlier."""
        return self._queue[0][0] if self._queue else None

    def expired(self, now_ms: int) -> list[MemberKey]:
        """Members whose time is over; they are forgotten here."""
        found = []
        while self._queue and self._queue[0][0] <= now_ms:
            _, key = heapq.heappop(self._queue)
            session = self._sessions.get(key)
            if session is None:
                continue
            if session.deadline_ms > now_ms:
                heapq.heappush(self._queue, (session.deadline_ms, key))
            else:
                del self._sessions[key]
                found.append(key)
        return found
