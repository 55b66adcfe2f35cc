"""Topics over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest


def test_a_created_topic_has_the_defaults_and_is_listed(shared: Any) -> None:
    answer = shared.client.post("/topics", json={"name": "orders"})
    assert answer.status_code == 201
    assert answer.json()["name"] == "orders"
    assert answer.json()["partitions"] == 3
    assert answer.json()["config"]["retention_ms"] == 168 * 3_600_000
    assert "orders" in [topic["name"] for topic in shared.client.get("/topics").json()["topics"]]


def test_retention_hours_become_milliseconds_and_zero_is_for_ever(shared: Any) -> None:
    for hours in (48, 0):
        answer = shared.client.post("/topics", json={"name": f"keep-{hours}", "retention_hours": hours})
        assert answer.json()["config"]["retention_ms"] == hours * 3_600_000


def test_retention_given_twice_is_refused(shared: Any) -> None:
    body = {"name": "twice", "retention_hours": 1, "config": {"retention_ms": 5}}
    answer = shared.client.post("/topics", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert shared.client.get("/topics/twice").status_code == 404


def test_a_second_topic_of_the_same_name_is_a_conflict(shared: Any) -> None:
    shared.topic("once")
    answer = shared.client.post("/topics", json={"name": "once"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "TOPIC_EXISTS")


def test_a_description_counts_messages_and_offsets_by_partition_as_text(shared: Any) -> None:
    topic = shared.topic("counted", partitions=2)
    shared.publish(topic, {"value": "a", "partition": 1}, {"value": "b", "partition": 1})
    found = shared.client.get(f"/topics/{topic}").json()
    assert found["total_messages"] == 2
    assert found["total_size_bytes"] > 0
    assert found["partition_offsets"] == {"0": {"earliest": 0, "latest": 0}, "1": {"earliest": 0, "latest": 2}}


def test_partitions_have_leader_and_offsets(shared: Any) -> None:
    topic = shared.topic("placed", partitions=2)
    shared.publish(topic, {"value": "a", "partition": 0})
    partitions = shared.client.get(f"/topics/{topic}/partitions").json()["partitions"]
    assert [partition["partition"] for partition in partitions] == [0, 1]
    first = partitions[0]
    assert (first["leader"], first["replicas"], first["isr"], first["leader_epoch"]) == (0, [0], [0], 0)
    offsets = "log_start_offset", "high_watermark", "last_stable_offset", "log_end_offset"
    assert [first[name] for name in offsets] == [0, 1, 1, 1]


def test_altered_settings_hold_and_the_others_stay(shared: Any) -> None:
    topic = shared.topic("altered", segment_bytes=8192)
    answer = shared.client.patch(f"/topics/{topic}", json={"config": {"max_message_bytes": 10}})
    assert answer.json()["config"]["max_message_bytes"] == 10
    assert shared.client.get(f"/topics/{topic}").json()["config"]["segment_bytes"] == 8192
    assert shared.publish(topic, {"value": "x" * 11}).status_code == 413


def test_every_wrong_setting_is_named_at_once(shared: Any) -> None:
    config = {"retention_ms": -1, "colour": "blue", "cleanup_policy": "burn"}
    answer = shared.client.post("/topics", json={"name": "wrong", "config": config})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "CONFIGURATION_INVALID")
    assert all(name in answer.json()["error"]["message"] for name in config)


def test_a_deleted_topic_is_gone_with_its_data(shared: Any) -> None:
    topic = shared.topic("gone")
    assert (shared.path / "logs" / topic).exists()
    answer = shared.client.delete(f"/topics/{topic}")
    assert (answer.status_code, answer.json()) == (200, {"name": topic, "deleted": True})
    assert not (shared.path / "logs" / topic).exists()
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/partitions")):
        body = {"config": {}} if method == "PATCH" else None
        answer = shared.client.request(method, f"/topics/{topic}{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "TOPIC_NOT_FOUND")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"name": 5},
        {"name": "x", "num_partitions": 0},
        {"name": "x", "num_partitions": 10_001},
        {"name": "x", "num_partitions": "3"},
        {"name": "x", "num_partitions": True},
        {"name": "x", "retention_hours": -1},
        {"name": "x", "colour": "blue"},
        {"name": "x", "config": []},
        [],
        "text",
    ],
)
def test_a_topic_that_makes_no_sense_is_refused(shared: Any, body: object) -> None:
    answer = shared.client.post("/topics", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "INVALID_REQUEST"
    assert "x" not in shared.broker.topics.catalog


HOSTILE = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "a\\b",
    "a b",
    "a\x00b",
    "ümlaut",
    "топик",
    "x" * 300,
    "a?b",
    "a%2fb",
    "\u202e",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_in_a_body_is_refused_and_never_touches_the_disk(shared: Any, name: str) -> None:
    before = sorted(shared.path.rglob("*"))
    answer = shared.client.post("/topics", json={"name": name})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "NAME_INVALID")
    assert sorted(shared.path.rglob("*")) == before


PATHS = [
    "",
    ".",
    "..",
    "%2e%2e",
    "..%2f..%2fetc",
    "a%2Fb",
    "a%5cb",
    "a%00b",
    "%c3%bc",
    "%ff",
    "%zz",
    "x" * 300,
    "a%20b",
]


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("rest", ["", "/messages", "/partitions/0/messages", "/partitions"])
def test_a_hostile_name_in_a_path_is_refused_and_never_touches_the_disk(shared: Any, name: str, rest: str) -> None:
    before = sorted(shared.path.rglob("*"))
    for method in ("GET", "POST", "DELETE"):
        request = f"{method} /topics/{name}{rest} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
        status, body = shared.raw(request.encode())
        assert status == 400, (method, body)
        assert json.loads(body)["error"]["code"] == "NAME_INVALID"
    assert sorted(shared.path.rglob("*")) == before


@pytest.mark.parametrize("rest", ["", "/partitions", "/partitions/0/messages"])
def test_internal_topics_are_forbidden(shared: Any, rest: str) -> None:
    answer = shared.client.get(f"/topics/__metadata{rest}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "TOPIC_INTERNAL")
    answer = shared.client.post("/topics", json={"name": "__mine"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "TOPIC_INTERNAL")
    assert shared.publish("__metadata", {"value": "x"}).status_code == 403
