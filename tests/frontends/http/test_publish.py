"""Publishing over HTTP: results, refusals, and bytes that come back as they went in."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import pytest

from goqueue.broker.disk_guard import DiskState
from goqueue.record import BatchBuilder, decode

names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(shared: Any) -> str:
    return str(shared.topic(next(names), partitions=3))


def read_all(shared: Any, topic: str) -> list[dict[str, Any]]:
    return [message for number in range(3) for message in shared.read(topic, number)["messages"]]


def test_each_message_has_its_result_in_order(shared: Any, topic: str) -> None:
    answer = shared.publish(topic, *({"value": str(n), "partition": n % 2} for n in range(6)))
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [(result["partition"], result["offset"]) for result in results] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (1, 1),
        (0, 2),
        (1, 2),
    ]
    assert all(result["timestamp"] > 0 and not result["delayed"] and result["priority"] == 2 for result in results)


@pytest.mark.parametrize("acks", ["none", "leader", "all"])
def test_every_kind_of_acks_is_answered_with_offsets(shared: Any, topic: str, acks: str) -> None:
    answer = shared.publish(topic, {"value": "x", "key": "k"}, {"value": "y", "key": "k"}, acks=acks)
    assert [result["offset"] for result in answer.json()["results"]] == [0, 1]


def test_acks_all_is_the_default_and_means_synced(shared: Any, topic: str) -> None:
    answer = shared.client.post(f"/topics/{topic}/messages", json={"messages": [{"value": "x", "partition": 0}]})
    assert answer.status_code == 200
    assert shared.call(lambda: shared.broker.topics.partition(topic, 0).log.synced_offset) == 1


def test_the_same_key_goes_to_the_same_partition(shared: Any, topic: str) -> None:
    results = shared.publish(topic, *({"value": "x", "key": f"k{n % 5}"} for n in range(50))).json()["results"]
    places = {(n % 5, result["partition"]) for n, result in enumerate(results)}
    assert len(places) == 5


def test_messages_without_a_key_take_turns_by_request(shared: Any, topic: str) -> None:
    places = [
        {r["partition"] for r in shared.publish(topic, *[{"value": "x"}] * 4).json()["results"]} for _ in range(3)
    ]
    assert all(len(place) == 1 for place in places)
    assert set.union(*places) == {0, 1, 2}


# -- bytes ------------------------------------------------------------------------------------------------------

BINARY = base64.b64encode(b"\xff\x00\xfe").decode()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"value": "text"}, {"value": "text"}),
        ({"value": ""}, {"value": ""}),
        (
            {"value": 'quote " back \\ slash \n \u00fc \U0001f600'},
            {"value": 'quote " back \\ slash \n \u00fc \U0001f600'},
        ),
        ({"value": None}, {"value": None}),
        ({"value": 1.50}, {"value": "1.5"}),
        ({"value": True}, {"value": "true"}),
        ({"value": {"b": [1, " 2 "], "a": None}}, {"value": '{"b":[1," 2 "],"a":null}'}),
        ({"value_base64": BINARY}, {"value_base64": BINARY}),
        ({"value_base64": base64.b64encode(b"text").decode()}, {"value": "text"}),
        ({"value_base64": ""}, {"value": ""}),
        ({"value_base64": None}, {"value": None}),
    ],
)
def test_a_value_comes_back_as_it_went_in(shared: Any, topic: str, given: Any, shown: Any) -> None:
    assert shared.publish(topic, {**given, "partition": 0, "key": "k"}).status_code == 200
    message = shared.read(topic)["messages"][0]
    assert {name: message[name] for name in message if name.startswith("value")} == shown


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, {"key": None}),
        ({"key": None}, {"key": None}),
        ({"key": ""}, {"key": ""}),
        ({"key": "k"}, {"key": "k"}),
        ({"key": 7}, {"key": "7"}),
        ({"key_base64": BINARY}, {"key_base64": BINARY}),
        ({"key_base64": None}, {"key": None}),
    ],
)
def test_no_key_an_empty_key_and_a_key_are_three_things(shared: Any, topic: str, given: Any, shown: Any) -> None:
    assert shared.publish(topic, {"value": "x", "partition": 0, **given}).status_code == 200
    message = shared.read(topic)["messages"][0]
    assert {name: message[name] for name in message if name.startswith("key")} == shown


def test_numbers_inside_json_keep_how_they_were_written(shared: Any, topic: str) -> None:
    body = b'{"messages": [{"partition": 0, "value": { "n" : 1.10, "big": 123456789012345678901234567890 } }]}'
    headers = {"content-type": "application/json"}
    assert shared.client.post(f"/topics/{topic}/messages", content=body, headers=headers).status_code == 200
    assert shared.read(topic)["messages"][0]["value"] == '{"n":1.10,"big":123456789012345678901234567890}'


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, {}),
        ({}, {}),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}),
        ([{"name": "a", "value": "1"}], {"a": "1"}),
        ([{"name": "a", "value": "1"}, {"name": "a", "value": "2"}], None),
        ([{"name": "a", "value_base64": BINARY}], None),
        ([{"name_base64": BINARY, "value": ""}], None),
    ],
)
def test_headers_come_back_with_their_order_and_repeats(shared: Any, topic: str, given: Any, shown: Any) -> None:
    assert shared.publish(topic, {"value": "x", "partition": 0, "headers": given}).status_code == 200
    assert shared.read(topic)["messages"][0]["headers"] == (given if shown is None else shown)


def test_everything_is_base64_when_asked_for_and_null_stays_null(shared: Any, topic: str) -> None:
    shared.publish(
        topic, {"value": "v", "key": "k", "headers": {"h": "1"}, "partition": 0}, {"value": None, "partition": 0}
    )
    first, second = shared.read(topic, encoding="base64")["messages"]
    assert (first["key_base64"], first["value_base64"]) == ("aw==", "dg==")
    assert first["headers"] == [{"name": "h", "value_base64": "MQ=="}]
    assert second["value"] is None


def test_priority_is_a_number_or_a_name(shared: Any, topic: str) -> None:
    given = [0, 4, "critical", "high", "normal", "low", "background"]
    results = shared.publish(topic, *({"value": "x", "partition": 0, "priority": p} for p in given)).json()["results"]
    assert [result["priority"] for result in results] == [0, 4, 0, 1, 2, 3, 4]
    assert [message["priority"] for message in shared.read(topic)["messages"]] == [0, 4, 0, 1, 2, 3, 4]


def test_traceparent_is_stored_as_a_header(shared: Any, topic: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    shared.publish(topic, {"value": "x", "partition": 0, "traceparent": trace, "headers": {"a": "1"}})
    assert shared.read(topic)["messages"][0]["headers"] == {"a": "1", "traceparent": trace}


# -- refusals ---------------------------------------------------------------------------------------------------

BAD_MESSAGES = [
    ({}, "INVALID_REQUEST", "value"),
    ({"value": "x", "value_base64": ""}, "INVALID_REQUEST", "exclude"),
    ({"value_base64": "%%%"}, "INVALID_REQUEST", "value_base64 is not base64"),
    ({"value": "x", "key": "a", "key_base64": ""}, "INVALID_REQUEST", "exclude"),
    ({"value": "x", "colour": 1}, "INVALID_REQUEST", "colour"),
    ({"value": "x", "partition": 3}, "PARTITION_NOT_FOUND", "partitions 0 to 2"),
    ({"value": "x", "partition": -1}, "PARTITION_NOT_FOUND", "partitions 0 to 2"),
    ({"value": "x", "partition": "0"}, "INVALID_REQUEST", "partition"),
    ({"value": "x", "priority": 5}, "INVALID_REQUEST", "priority"),
    ({"value": "x", "priority": 10**30}, "INVALID_REQUEST", "priority"),
    ({"value": "x", "priority": "urgent"}, "INVALID_REQUEST", "critical"),
    ({"value": "x", "priority": True}, "INVALID_REQUEST", "priority"),
    ({"value": "x", "headers": {"a": 1}}, "INVALID_REQUEST", "headers"),
    ({"value": "x", "headers": [{"name": "a"}]}, "INVALID_REQUEST", "one of value and value_base64"),
    ({"value": "x", "headers": [{"name": "a", "name_base64": None, "value": "b"}]}, "INVALID_REQUEST", "name_base64"),
    ({"value": "x", "headers": [{"name": "a", "name_base64": "", "value": "b"}]}, "INVALID_REQUEST", "one of name"),
    ({"value": "x", "headers": {"a": "y" * 70_000}}, "HEADERS_TOO_LARGE", "65535"),
    ({"value": "x", "key": "y" * 70_000}, "KEY_TOO_LARGE", "65535"),
    ({"value": "x", "traceparent": "nonsense"}, "INVALID_REQUEST", "traceparent"),
    ({"value": "x", "ttl": "1h"}, "FEATURE_UNAVAILABLE", "ttl"),
    (5, "INVALID_REQUEST", "object"),
    (None, "INVALID_REQUEST", "object"),
]


@pytest.mark.parametrize(("message", "code", "text"), BAD_MESSAGES)
def test_a_bad_message_costs_only_itself(shared: Any, topic: str, message: Any, code: str, text: str) -> None:
    good = {"value": "good", "partition": 0}
    answer = shared.publish(topic, good, message, good)
    assert answer.status_code == 207
    first, bad, last = answer.json()["results"]
    assert (first["offset"], last["offset"]) == (0, 1)
    assert bad.keys() == {"error"}
    assert bad["error"]["code"] == code
    assert text in bad["error"]["message"]
    assert [message["value"] for message in read_all(shared, topic)] == ["good", "good"]


def test_no_valid_message_is_a_bad_request_with_a_result_for_each(shared: Any, topic: str) -> None:
    answer = shared.publish(topic, {"value": "x", "partition": 9}, {"value": "x", "colour": 1})
    assert answer.status_code == 400
    assert [result["error"]["code"] for result in answer.json()["results"]] == [
        "PARTITION_NOT_FOUND",
        "INVALID_REQUEST",
    ]
    assert answer.json()["error"]["code"] in ("PARTITION_NOT_FOUND", "INVALID_REQUEST")
    assert read_all(shared, topic) == []


def test_a_value_over_the_topics_limit_is_too_large(shared: Any) -> None:
    topic = shared.topic("small", max_message_bytes=10)
    answer = shared.publish(topic, {"value": "x" * 11})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "VALUE_TOO_LARGE")
    answer = shared.publish(topic, {"value": "x" * 11}, {"value": "x" * 10})
    assert answer.status_code == 207
    assert answer.json()["results"][1]["offset"] == 0


NO_REQUESTS = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff",
    b"{}" * 2,
    b'{"messages": "x"}',
    b'{"messages": []}',
    b'{"acks": "all"}',
    b'{"messages": [{"value": "x"}], "acks": "some"}',
    b'{"messages": [{"value": "x"}], "colour": 1}',
    b'{"messages": [{"value": "\xff"}]}',
    b'{"messages": [{"value": {"a": "\xff"}}]}',
    b'{"messages": [{"value": "\\ud800"}]}',
    b'{"messages": ' + b"[" * 100_000,
    b'{"messages": [{"value": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
]


@pytest.mark.parametrize("body", NO_REQUESTS)
def test_a_body_that_is_no_request_is_refused_whole(shared: Any, topic: str, body: bytes) -> None:
    answer = shared.client.post(f"/topics/{topic}/messages", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_REQUEST")
    assert read_all(shared, topic) == []


def test_more_messages_than_allowed_are_refused_whole(start: Any) -> None:
    server = start(broker={"publish_messages_max": 2})
    topic = server.topic("t")
    answer = server.publish(topic, *[{"value": "x"}] * 3)
    assert (answer.status_code, answer.json()["error"]["limit"]) == (413, "publish_messages")
    assert server.publish(topic, *[{"value": "x"}] * 2).status_code == 200


def test_an_unknown_topic_is_not_found(shared: Any) -> None:
    answer = shared.publish("nowhere", {"value": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "TOPIC_NOT_FOUND")


def test_a_full_disk_is_507_and_can_still_be_read(start: Any) -> None:
    server = start()
    topic = server.topic("t")
    server.publish(topic, {"value": "before"})
    server.call(lambda: setattr(server.broker.disk_guard, "state", DiskState.REFUSING))
    answer = server.publish(topic, {"value": "x"})
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["error"]["retriable"]) == (
        507,
        "DISK_FULL",
        True,
    )
    assert len(server.read(topic)["messages"]) == 1


def test_a_draining_broker_says_when_to_come_back(start: Any) -> None:
    server = start()
    topic = server.topic("t")
    server.call(server.broker.drain)
    answer = server.publish(topic, {"value": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "NOT_READY")
    assert int(answer.headers["retry-after"]) >= 1


# -- native batches ---------------------------------------------------------------------------------------------

NATIVE = {"content-type": "application/octet-stream"}


def batch(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.add(value, b"k", [("h", "1")], 3)
    return bytes(builder.take())


@pytest.mark.parametrize("acks", ["none", "leader", "all", None])
def test_a_native_batch_is_stored_whole_and_read_back_as_bytes(shared: Any, topic: str, acks: str | None) -> None:
    path = f"/topics/{topic}/partitions/1/messages"
    parameters = {"acks": acks} if acks else {}
    answer = shared.client.post(path, content=batch(b"a", b"\xff"), headers=NATIVE, params=parameters)
    assert answer.status_code == 200
    stored = answer.json()
    assert (stored["partition"], stored["base_offset"], stored["next_offset"], stored["count"]) == (1, 0, 2, 2)
    answer = shared.client.get(path, headers={"accept": "application/octet-stream"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert [(r.offset, r.key, r.value, r.priority) for r in decode(answer.content)] == [
        (0, b"k", b"a", 3),
        (1, b"k", b"\xff", 3),
    ]
    shown = {name: int(value) for name, value in answer.headers.items() if name.startswith("goqueue-")}
    assert shown == {
        "goqueue-base-offset": 0,
        "goqueue-next-offset": 2,
        "goqueue-log-start-offset": 0,
        "goqueue-high-watermark": 2,
        "goqueue-last-stable-offset": 2,
    }


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "BATCH_EMPTY"),
        (b"nonsense" * 10, "MAGIC_INVALID"),
        (batch(b"a")[:-1], "RECORD_TRUNCATED"),
        (batch(b"a")[:-1] + b"!", "CHECKSUM_MISMATCH"),
    ],
)
def test_a_damaged_batch_is_refused_whole(shared: Any, topic: str, body: bytes, code: str) -> None:
    answer = shared.client.post(f"/topics/{topic}/partitions/0/messages", content=body, headers=NATIVE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)
    assert read_all(shared, topic) == []


def test_a_batch_cannot_claim_to_be_the_brokers(shared: Any, topic: str) -> None:
    builder = BatchBuilder()
    builder.add(b"", b"\0\0", flags=0x08)
    answer = shared.client.post(f"/topics/{topic}/partitions/0/messages", content=bytes(builder.take()), headers=NATIVE)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "FLAGS_FORBIDDEN")


def test_acks_of_a_batch_are_checked(shared: Any, topic: str) -> None:
    for query in ("acks=some", "ack=all", "acks=all&acks=none"):
        answer = shared.client.post(
            f"/topics/{topic}/partitions/0/messages?{query}", content=batch(b"a"), headers=NATIVE
        )
        assert answer.status_code == 400
