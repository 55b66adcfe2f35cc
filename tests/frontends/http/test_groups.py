"""Consumer groups over HTTP: both protocols, polls, offsets, and what is refused with which status."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import httpx
import pytest


def post(server: Any, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = server.client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def get(server: Any, path: str, status: int = 200, **parameters: Any) -> dict[str, Any]:
    answer = server.client.get(path, params=parameters)
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def join(server: Any, group: str, topic: str, kind: str = "join", **options: Any) -> dict[str, Any]:
    return post(server, f"/groups/{group}/{kind}", client_id="c", topics=[topic], **options)


def identity(member: dict[str, Any]) -> dict[str, Any]:
    return {"member_id": member["member_id"], "generation": member["generation"]}


def test_eager_members_share_at_once_and_stale_ones_are_fenced(shared: Any) -> None:
    topic = shared.topic("eager", partitions=4)
    first = join(shared, "eager", topic)
    assert first["assignment"] == {topic: [0, 1, 2, 3]}
    assert first["leader_id"] == first["member_id"]
    second = join(shared, "eager", topic)
    assert second["generation"] == first["generation"] + 1
    assert second["assignment"] == {topic: [2, 3]}
    for path, extra in (("heartbeat", {}), ("offsets", {"offsets": {topic: {"0": 0}}})):
        refused = post(shared, f"/groups/eager/{path}", 409, **identity(first), **extra)
        assert refused["error"]["code"] == "STALE_GENERATION"
    refused = get(shared, "/groups/eager/poll", 409, **identity(first))
    assert refused["error"]["generation"] == second["generation"]
    again = join(shared, "eager", topic, member_id=first["member_id"])
    assert again["generation"] == second["generation"]
    assert again["assignment"] == {topic: [0, 1]}
    beat = post(shared, "/groups/eager/heartbeat", **identity(again))
    assert (beat["status"], beat["rebalance_required"]) == ("ok", False)
    left = post(shared, "/groups/eager/leave", **identity(again))
    assert left["generation"] == second["generation"] + 1
    gone = post(shared, "/groups/eager/heartbeat", 409, **identity(again))
    assert gone["error"]["code"] == "UNKNOWN_MEMBER"


def test_cooperative_members_hand_over_step_by_step(shared: Any) -> None:
    topic = shared.topic("cooperative", partitions=4)
    first = join(shared, "coop", topic, "join/cooperative")
    second = join(shared, "coop", topic, "join/cooperative")
    assert (second["state"], second["partitions_assigned"]) == ("pending_assign", [])
    beat = post(shared, "/groups/coop/heartbeat/cooperative", **identity(first))
    assert beat["rebalance_required"] is True
    assert beat["state"] == "pending_revoke"
    assert beat["partitions_to_revoke"] == [{"topic": topic, "partition": 2}, {"topic": topic, "partition": 3}]
    assert beat["assignment"] == {topic: [0, 1]}
    assert beat["revocation_deadline"] > time.time() * 1000
    progress = get(shared, "/groups/coop/cooperative")
    assert progress["state"] == "Rebalancing"
    done = post(shared, "/groups/coop/revoke", **identity(beat), revoked_partitions=beat["partitions_to_revoke"])
    assert (done["state"], done["partitions_to_revoke"]) == ("complete", [])
    beat = post(shared, "/groups/coop/heartbeat/cooperative", **identity(second))
    assert beat["assignment"] == {topic: [2, 3]}
    shown = get(shared, "/groups/coop/assignment", member_id=second["member_id"])
    assert shown["assignment"] == {topic: [2, 3]}
    assert set(shown["assignments"]) == {first["member_id"], second["member_id"]}
    assert get(shared, "/groups/coop")["state"] == "Stable"
    stats = get(shared, "/groups/coop/rebalance/stats")
    assert (stats["rebalances"], stats["partitions_moved"]) == (2, 2)
    assert get(shared, "/rebalance/stats")["rebalances"] >= 2
    post(shared, "/groups/coop/leave/cooperative", member_id=first["member_id"])


def test_a_group_is_described_listed_and_deleted(shared: Any) -> None:
    topic = shared.topic("described", partitions=1)
    member = join(shared, "described", topic, mode="shared", assignor="range")
    found = get(shared, "/v1/groups/described")
    assert {name: found[name] for name in ("id", "state", "protocol", "assignor", "mode", "generation")} == {
        "id": "described",
        "state": "Stable",
        "protocol": "eager",
        "assignor": "range",
        "mode": "shared",
        "generation": 1,
    }
    assert found["members"][0]["assigned"] == {topic: [0]}
    assert found["members"][0]["last_heartbeat"] > 0
    assert "described" in [group["id"] for group in get(shared, "/groups")["groups"]]
    assert shared.client.delete("/groups/described").json()["error"]["code"] == "GROUP_NOT_EMPTY"
    post(shared, "/groups/described/leave", **identity(member))
    assert shared.client.delete("/groups/described").json() == {"id": "described", "deleted": True}
    get(shared, "/groups/described", 404)


def test_poll_hands_out_each_message_once_and_a_new_owner_goes_back_to_what_was_committed(shared: Any) -> None:
    topic = shared.topic("polled", partitions=2)
    shared.publish(topic, *({"value": str(n), "partition": n % 2, "headers": {"n": str(n)}} for n in range(6)))
    member = join(shared, "polled", topic)
    first = get(shared, "/groups/polled/poll", **identity(member), limit=4)
    second = get(shared, "/groups/polled/poll", **identity(member), limit=4)
    values = [message["value"] for page in (first, second) for message in page["messages"]]
    assert sorted(values) == [str(n) for n in range(6)]
    assert first["messages"][0].keys() == {
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        "headers",
        "priority",
    }
    assert second["next_offset"] == {topic: {"0": 3, "1": 3}}
    committed = post(shared, "/groups/polled/offsets", **identity(member), offsets={topic: {"0": 2}})
    assert committed["offsets"][topic]["0"]["offset"] == 2
    post(shared, "/groups/polled/leave", **identity(member))
    again = join(shared, "polled", topic)
    page = get(shared, "/groups/polled/poll", **identity(again))
    assert sorted((m["partition"], m["offset"]) for m in page["messages"]) == [(0, 2), (1, 0), (1, 1), (1, 2)]


def test_a_long_poll_answers_within_milliseconds_of_a_message(shared: Any) -> None:
    topic = shared.topic("woken", partitions=3)
    member = join(shared, "woken", topic)
    answers: list[tuple[float, Any]] = []

    def poll() -> None:
        page = httpx.get(f"{shared.url}/groups/woken/poll", params={**identity(member), "timeout": "10s"}, timeout=20)
        answers.append((time.monotonic(), page.json()))

    thread = threading.Thread(target=poll)
    thread.start()
    shared.wait_until(lambda: shared.readers(topic) == 1)
    published = time.monotonic()
    shared.publish(topic, {"value": "now", "partition": 2})
    thread.join(10)
    assert [message["value"] for message in answers[0][1]["messages"]] == ["now"]
    assert answers[0][0] - published < 0.5


def test_a_long_poll_ends_when_its_client_goes_away(shared: Any) -> None:
    topic = shared.topic("abandoned", partitions=1)
    member = join(shared, "abandoned", topic)
    query = f"member_id={member['member_id']}&generation={member['generation']}&timeout=30s"
    with socket.create_connection((shared.host, shared.port)) as connection:
        connection.sendall(f"GET /groups/abandoned/poll?{query} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        shared.wait_until(lambda: shared.readers(topic) == 1)
    shared.wait_until(lambda: shared.readers(topic) == 0)


def test_an_empty_poll_ends_in_time_and_a_polling_member_outlives_its_session(shared: Any) -> None:
    topic = shared.topic("patient", partitions=1)
    member = join(shared, "patient", topic, session_timeout_ms=200)
    page = get(shared, "/groups/patient/poll", **identity(member), timeout="700ms")
    assert page["messages"] == []
    post(shared, "/groups/patient/heartbeat", **identity(member))


def test_an_eager_poll_under_way_is_fenced_by_a_new_generation(shared: Any) -> None:
    topic = shared.topic("interrupted", partitions=1)
    member = join(shared, "interrupted", topic)
    answers: list[httpx.Response] = []

    def poll() -> None:
        parameters = {**identity(member), "timeout": "10s"}
        answers.append(httpx.get(f"{shared.url}/groups/interrupted/poll", params=parameters, timeout=20))

    thread = threading.Thread(target=poll)
    thread.start()
    shared.wait_until(lambda: shared.readers(topic) == 1)
    join(shared, "interrupted", topic)
    thread.join(10)
    assert answers[0].status_code == 409


def test_a_member_that_is_not_heard_of_is_removed(shared: Any) -> None:
    topic = shared.topic("silent", partitions=2)
    quiet = join(shared, "silent", topic, session_timeout_ms=150)
    member = join(shared, "silent", topic)
    shared.wait_until(lambda: len(shared.broker.groups.group("silent").members) == 1)
    refused = post(shared, "/groups/silent/heartbeat", 409, **identity(quiet))
    assert refused["error"]["code"] == "UNKNOWN_MEMBER"
    again = join(shared, "silent", topic, member_id=member["member_id"])
    assert again["assignment"] == {topic: [0, 1]}
    assert get(shared, "/groups/silent/rebalance/stats")["expired_members"] == 1


def test_offsets_of_a_group_without_members_show_its_lag(shared: Any) -> None:
    topic = shared.topic("watched", partitions=2)
    shared.publish(topic, *({"value": "x", "partition": 0} for _ in range(5)))
    offsets = {topic: {"0": {"offset": 2, "metadata": "run 4"}}}
    post(shared, "/groups/watcher/offsets", offsets=offsets)
    shown = get(shared, "/groups/watcher/offsets")["offsets"][topic]
    assert (shown["0"]["offset"], shown["0"]["metadata"], shown["0"]["lag"]) == (2, "run 4", 3)
    assert shown["0"]["committed_at"] > 0
    assert (shown["1"]["offset"], shown["1"]["lag"]) == (None, 0)
    assert get(shared, "/groups/watcher")["state"] == "Empty"


def test_offsets_are_reset_to_all_kinds_of_places(shared: Any) -> None:
    topic = shared.topic("rewound", partitions=1)
    shared.publish(topic, *({"value": "x"} for _ in range(5)))
    post(shared, "/groups/rewound/offsets", offsets={topic: {"0": 3}})

    def reset(status: int = 200, **body: Any) -> Any:
        return post(shared, "/groups/rewound/offsets/reset", status, topic=topic, **body)

    assert reset(to="earliest", dry_run=True) == {
        "dry_run": True,
        "offsets": {topic: {"0": {"offset": 0, "before": 3}}},
    }
    assert get(shared, "/groups/rewound/offsets")["offsets"][topic]["0"]["offset"] == 3
    for target, offset in (
        ({"to": "earliest"}, 0),
        ({"to": "latest"}, 5),
        ({"to": "offset", "offset": 2}, 2),
        ({"to": 4}, 4),
        ({"to": "timestamp", "timestamp": 0}, 0),
        ({"to": "timestamp", "timestamp": "2200-01-01T00:00:00Z"}, 5),
    ):
        assert reset(**target)["offsets"][topic]["0"]["offset"] == offset
        assert get(shared, "/groups/rewound/offsets")["offsets"][topic]["0"]["offset"] == offset
    assert reset(400, to="offset", offset=6)["error"]["code"] == "OFFSET_OUT_OF_RANGE"
    assert reset(400, to="timestamp")["error"]["code"] == "INVALID_REQUEST"
    assert reset(404, to="latest", partitions=[1])["error"]["code"] == "PARTITION_NOT_FOUND"
    join(shared, "rewound", topic)
    assert reset(409, to="latest")["error"]["code"] == "GROUP_NOT_EMPTY"


def test_offsets_do_not_apply_to_a_topic_created_again(shared: Any) -> None:
    topic = shared.topic("again", partitions=1)
    shared.publish(topic, {"value": "old"})
    post(shared, "/groups/again/offsets", offsets={topic: {"0": 1}})
    shared.client.delete(f"/topics/{topic}")
    get(shared, "/groups/again", 404)
    shared.topic("again", partitions=1)
    shared.publish(topic, {"value": "new"})
    member = join(shared, "again", topic)
    page = get(shared, "/groups/again/poll", **identity(member))
    assert [message["value"] for message in page["messages"]] == ["new"]


@pytest.mark.parametrize(
    ("offsets", "status", "code"),
    [
        ({"fenced": {"0": -1}}, 400, "INVALID_REQUEST"),
        ({"fenced": {"0": 99}}, 400, "OFFSET_OUT_OF_RANGE"),
        ({"fenced": {"9": 0}}, 404, "PARTITION_NOT_FOUND"),
        ({"nothing": {"0": 0}}, 404, "TOPIC_NOT_FOUND"),
        ({"fenced": {"0": {"offset": 0, "metadata": "x" * 5000}}}, 413, "LIMIT_EXCEEDED"),
    ],
)
def test_bad_offsets_are_refused_and_change_nothing(shared: Any, offsets: Any, status: int, code: str) -> None:
    if not shared.call(lambda: "fenced" in shared.broker.topics.catalog):
        shared.topic("fenced", partitions=1)
    refused = post(shared, "/groups/fenced/offsets", status, offsets=offsets)
    assert refused["error"]["code"] == code
    get(shared, "/groups/fenced", 404)


def test_bad_members_are_refused_with_codes_of_their_own(shared: Any) -> None:
    topic = shared.topic("strict", partitions=2)
    first = join(shared, "strict", topic)
    second = join(shared, "strict", topic)
    first = join(shared, "strict", topic, member_id=first["member_id"])

    def refused(path: str, status: int, **body: Any) -> str:
        return str(post(shared, f"/groups/strict/{path}", status, **body)["error"]["code"])

    foreign = {topic: {"1": 0}}
    assert refused("offsets", 409, **identity(first), offsets=foreign) == "PARTITION_NOT_ASSIGNED"
    assert refused("offsets", 409, offsets=foreign) == "UNKNOWN_MEMBER"
    assert refused("join", 409, client_id="d", topics=[topic], member_id=first["member_id"]) == "MEMBER_ID_IN_USE"
    assert refused("join", 409, client_id="c", topics=[topic], member_id="c-0") == "UNKNOWN_MEMBER"
    assert refused("join", 409, topics=[topic], mode="shared") == "GROUP_MISMATCH"
    assert refused("join/cooperative", 409, topics=[topic]) == "GROUP_MISMATCH"
    assert refused("join", 404, topics=["nothing"]) == "TOPIC_NOT_FOUND"
    assert refused("join", 403, topics=["__consumer_offsets"]) == "TOPIC_INTERNAL"
    assert refused("join", 400, topics=[]) == "INVALID_REQUEST"
    assert refused("join", 400, topics=[topic], session_timeout_ms=1) == "INVALID_REQUEST"
    assert refused("join", 400, client_id="a b", topics=[topic]) == "NAME_INVALID"
    future = {"member_id": first["member_id"], "generation": 99}
    assert refused("heartbeat", 409, **future) == "STALE_GENERATION"
    assert get(shared, "/groups/strict")["generation"] == second["generation"]


@pytest.mark.parametrize("name", ["a%2Fb", "..", "a%20b", "x" * 250, "__internal"])
def test_group_names_are_checked_at_the_gate(shared: Any, name: str) -> None:
    status, body = shared.raw(f"GET /groups/{name} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    assert status == 400
    assert b"NAME_INVALID" in body


def test_groups_survive_a_restart(start: Any) -> None:
    server = start()
    topic = server.topic("kept", partitions=2)
    server.publish(topic, *({"value": str(n), "partition": n % 2} for n in range(4)))
    first = join(server, "kept", topic, "join/cooperative")
    second = join(server, "kept", topic, "join/cooperative")
    post(server, "/groups/kept/offsets", **{**identity(first), "generation": 2}, offsets={topic: {"0": 1}})
    server.stop()
    again = start(path=server.path)
    beat = post(again, "/groups/kept/heartbeat/cooperative", **identity(first))
    assert beat["partitions_to_revoke"] == [{"topic": topic, "partition": 1}]
    post(again, "/groups/kept/revoke", **identity(beat), revoked_partitions=beat["partitions_to_revoke"])
    assert post(again, "/groups/kept/heartbeat", **identity(second))["assignment"] == {topic: [1]}
    page = get(again, "/groups/kept/poll", **identity(beat))
    assert [(message["partition"], message["offset"]) for message in page["messages"]] == [(0, 1)]
