"""`goqueue group` against a broker with groups in it."""

from __future__ import annotations

import json

import pytest

from goqueue.client import SyncClient
from tests.cli.conftest import Run


@pytest.fixture
def group(run: Run, topic: str, address: str) -> str:
    """A group of the topic's name that has read some of 5 messages of each partition."""
    with SyncClient(address) as client:
        for n in range(10):
            client.send(topic, b"x", partition=n % 2)
        client.commit_offsets(topic, {(topic, 0): (3, "note"), (topic, 1): 5})
    return topic


def test_groups_are_listed_and_described(run: Run, group: str) -> None:
    listed = json.loads(run("group", "list", "-o", "json").out)
    assert {"id": group, "state": "Empty", "mode": None, "generation": 0, "members": 0} in listed
    assert group in run("group", "list").out
    described = run("group", "describe", group)
    assert "Empty" in described.out


def test_members_are_described_with_what_they_own(run: Run, topic: str, address: str) -> None:
    with SyncClient(address) as client, client.consumer(topic, [topic]):
        out = run("group", "describe", topic).out
        assert f"{topic}: 0,1" in out
        assert "Stable" in out
        refused = run("group", "delete", topic, "--yes")
    assert refused.code == 1
    assert "GROUP_NOT_EMPTY" in refused.err


def test_offsets_and_lag_are_shown(run: Run, group: str) -> None:
    rows = json.loads(run("group", "offsets", group, "-o", "json").out)
    assert [(row["partition"], row["offset"], row["lag"], row["metadata"]) for row in rows] == [
        (0, 3, 2, "note"),
        (1, 5, 0, ""),
    ]
    assert json.loads(run("group", "lag", group, "-o", "json").out) == [{"topic": group, "lag": 2}]


def test_offsets_are_reset_after_a_dry_run(run: Run, group: str) -> None:
    dry = run("group", "reset-offsets", group, "-t", group, "--to", "earliest", "--dry-run")
    assert "nothing was changed" in dry.out
    assert json.loads(run("group", "lag", group, "-o", "json").out)[0]["lag"] == 2
    done = run("group", "reset-offsets", group, "-t", group, "--to", "1", "-p", "0", "-o", "json")
    assert json.loads(done.out) == [{"partition": 0, "before": 3, "after": 1}]
    run("group", "reset-offsets", group, "-t", group, "--to", "@1h")
    assert json.loads(run("group", "lag", group, "-o", "json").out)[0]["lag"] == 10
    assert run("group", "reset-offsets", group, "-t", group, "--to", "nowhere").code == 2
    beyond = run("group", "reset-offsets", group, "-t", group, "--to", "99")
    assert beyond.code == 1
    assert "OFFSET_OUT_OF_RANGE" in beyond.err


def test_a_group_is_deleted(run: Run, group: str) -> None:
    assert run("group", "delete", group, "--yes").out == f"deleted group {group}\n"
    gone = run("group", "describe", group)
    assert gone.code == 1
    assert "GROUP_NOT_FOUND" in gone.err
