"""Sessions end when nothing is heard of a member for its timeout, and not before."""

from __future__ import annotations

from goqueue.groups import Sessions

A, B = ("g", "a"), ("g", "b")


def test_a_member_expires_at_its_deadline_and_a_heartbeat_moves_it() -> None:
    sessions = Sessions()
    sessions.begin(A, timeout_ms=100, generation=1, now_ms=0)
    sessions.begin(B, timeout_ms=100, generation=1, now_ms=0)
    sessions.touch(A, 60, 1)
    assert sessions.expired(99) == []
    assert sessions.expired(100) == [B]
    assert sessions.next_deadline_ms == 160
    assert sessions.expired(160) == [A]
    assert len(sessions) == 0
    assert sessions.next_deadline_ms is None


def test_a_session_that_ended_does_not_expire() -> None:
    sessions = Sessions()
    sessions.begin(A, timeout_ms=100, generation=1, now_ms=0)
    sessions.end(A)
    assert sessions.expired(1_000) == []


def test_the_newest_generation_a_member_used_is_remembered() -> None:
    sessions = Sessions()
    sessions.begin(A, timeout_ms=100, generation=1, now_ms=0)
    sessions.touch(A, 1, 3)
    sessions.touch(A, 2, 2)
    found = sessions.get(A)
    assert found is not None
    assert found.generation == 3
