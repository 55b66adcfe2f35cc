"""Delayed messages over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frontends.http.conftest import RunningServer, Start


def test_publish_list_show_reschedule_cancel(shared: RunningServer) -> None:
    topic = shared.topic("delays")
    answer = shared.publish(
        topic,
        {"value": "a", "key": "k", "headers": {"h": "1"}, "priority": "high", "delay": "1h"},
        {"value": "b"},
        {"value": "c", "deliverAt": "2001-01-01T00:00:00Z"},
        {"value": "d", "deliver_at": shared.broker.delays.now_ms() + 7_200_000},
    )
    assert answer.status_code == 200, answer.text
    results = answer.json()["results"]
    assert [result["delayed"] for result in results] == [True, False, False, True]
    assert results[0]["priority"] == 1
    listed = shared.client.get(f"/topics/{topic}/delayed").json()
    assert listed["total"] == 2
    assert [message["offset"] for message in listed["messages"]] == [0, 3]
    assert listed["messages"][0]["deliver_at"] == results[0]["deliver_at"]
    assert 3_500_000 < listed["messages"][0]["remaining_ms"] <= 3_600_000
    assert shared.client.get(f"/topics/{topic}/delayed?limit=1&skip=1").json()["messages"][0]["offset"] == 3
    assert [message["value"] for message in shared.read(topic)["messages"]] == ["b", "c"]

    one = f"/v1/topics/{topic}/delayed/0/0"
    shown = shared.client.get(one).json()
    assert shown["state"] == "pending"
    assert (shown["message"]["key"], shown["message"]["value"], shown["message"]["headers"]) == ("k", "a", {"h": "1"})
    moved = shared.client.patch(one, json={"delay": "2h"})
    assert moved.status_code == 200, moved.text
    assert moved.json()["remaining_ms"] > 7_000_000
    gone = shared.client.delete(one).json()
    assert (gone["cancelled"], gone["state"]) == (True, "cancelled")
    refused = shared.client.patch(one, json={"delay": 5})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "DELAYED_FINISHED")
    statistics = shared.client.get("/delay/stats").json()
    assert statistics["topics"][topic] == 1
    assert "goqueue_broker_delay_pending" in shared.client.get("/metrics").text


def test_a_short_delay_is_released_and_cancel_says_so(shared: RunningServer) -> None:
    topic = shared.topic("short")
    assert shared.publish(topic, {"value": "soon", "delay": 30}).json()["results"][0]["delayed"] is True
    page = shared.read(topic, offset=1, wait="5s")
    assert [message["value"] for message in page["messages"]] == ["soon"]
    assert page["messages"][0]["headers"] == {"goqueue.origin-offset": "0"}
    answer = shared.client.delete(f"/topics/{topic}/delayed/0/0").json()
    assert (answer["cancelled"], answer["state"]) == (False, "released")
    assert answer["released_offset"] == page["messages"][0]["offset"]


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ({"delay": -1}, "DELAY_INVALID"),
        ({"delay": "-5s"}, "INVALID_REQUEST"),
        ({"delay": "9999999h"}, "DELAY_TOO_LONG"),
        ({"delay": 10**17}, "DELAY_TOO_LONG"),
        ({"delay": 1, "deliver_at": 1}, "DELAY_INVALID"),
        ({"deliver_at": 1, "deliverAt": 1}, "INVALID_REQUEST"),
        ({"deliver_at": "tomorrow"}, "INVALID_REQUEST"),
        ({"delay": 1.5}, "INVALID_REQUEST"),
        ({"delay": [1]}, "INVALID_REQUEST"),
    ],
)
def test_a_bad_delay_is_refused(shared: RunningServer, field: dict[str, Any], code: str) -> None:
    topic = shared.topic("bad") if "bad" not in shared.broker.topics.catalog else "bad"
    answer = shared.publish(topic, {"value": "x", **field})
    assert answer.status_code == 400
    assert answer.json()["results"][0]["error"]["code"] == code
    assert shared.client.get(f"/topics/{topic}/delayed").json()["total"] == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/topics/none/delayed", None, 404),
        ("GET", "/topics/known/delayed/0/0", None, 404),
        ("DELETE", "/topics/known/delayed/9/0", None, 404),
        ("DELETE", "/topics/known/delayed/0/-1", None, 400),
        ("DELETE", "/topics/known/delayed/0/x", None, 400),
        ("PATCH", "/topics/known/delayed/0/0", {}, 400),
        ("PATCH", "/topics/known/delayed/0/0", {"delay": True}, 400),
        ("PATCH", "/topics/known/delayed/0/0", {"what": 1}, 400),
        ("GET", "/topics/known/delayed?limit=1001", None, 400),
        ("GET", "/topics/known/delayed?skip=-1", None, 400),
    ],
)
def test_bad_requests(shared: RunningServer, method: str, path: str, body: object, status: int) -> None:
    if "known" not in shared.broker.topics.catalog:
        shared.topic("known")
    answer = shared.client.request(method, path, json=body) if body is not None else shared.client.request(method, path)
    assert answer.status_code == status, answer.text
    assert "error" in answer.json()


def test_pending_messages_survive_a_restart(start: Start) -> None:
    first = start()
    topic = first.topic("kept")
    first.publish(topic, {"value": "x", "delay": "1h"}, acks="all")
    first.stop()
    second = start(path=first.path)
    assert second.client.get(f"/topics/{topic}/delayed/0/0").json()["state"] == "pending"
