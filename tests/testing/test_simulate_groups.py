"""The short form of `make sim-groups`, and that the simulation would notice what it looks for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from goqueue.broker.groups import GroupCoordinator
from goqueue.groups import GroupMachine, rebalance
from goqueue.groups.offsets import encode_offset
from goqueue.testing.simulate_groups import failure_of, main


def test_seeds_pass_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "40"]) == 0
    assert "all passed" in capsys.readouterr().out


def test_a_run_depends_on_nothing_but_its_seed() -> None:
    first, second = failure_of(7)[0], failure_of(7)[0]
    assert first.trace == second.trace
    assert first.history == second.history


def test_commits_that_nobody_checks_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(self: GroupMachine, name: str, member_id: object, generation: int, commits: Any, now_ms: int) -> Any:
        return [(f"offset:{name}:{c.topic}:{c.partition}".encode(), encode_offset(c, now_ms)) for c in commits]

    monkeypatch.setattr(GroupMachine, "handle_commit", unchecked)
    monkeypatch.setattr(GroupCoordinator, "fenced", lambda *_: None)
    assert any(failure_of(seed)[1] for seed in range(30))


def test_a_partition_given_away_too_early_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_once(members: Any) -> Any:
        return [replace(m, owned=m.owned if m.target is None else {**m.owned, **m.target}) for m in members]

    monkeypatch.setattr(rebalance, "_granted", at_once)
    assert any(failure_of(seed)[1] for seed in range(10))


def test_a_lost_offset_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = GroupMachine.replay
    monkeypatch.setattr(
        GroupMachine, "replay", lambda self, record: None if b"offset:" in record[0] else replay(self, record)
    )
    assert any(failure_of(seed)[1] for seed in range(5))
