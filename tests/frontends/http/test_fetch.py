"""Reading over HTTP: places, limits, and long polls that end when they should."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

names = (f"topic-{number}" for number in itertools.count())


@pytest.fixture
def topic(shared: Any) -> str:
    return str(shared.topic(next(names)))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def values(page: dict[str, Any]) -> list[str]:
    return [message["value"] for message in page["messages"]]


def test_reading_goes_in_log_order_page_by_page(shared: Any, topic: str) -> None:
    shared.publish(topic, *({"value": str(n)} for n in range(250)))
    found: list[str] = []
    offset = 0
    while page := shared.read(topic, offset=offset)["messages"]:
        assert len(page) <= 100
        found += [message["value"] for message in page]
        offset = page[-1]["offset"] + 1
    assert found == [str(n) for n in range(250)]


def test_a_page_says_where_to_go_on_and_how_far_it_goes(shared: Any, topic: str) -> None:
    shared.publish(topic, *({"value": str(n)} for n in range(5)))
    page = shared.read(topic, offset=1, limit=2)
    assert (values(page), page["next_offset"], page["high_watermark"]) == (["1", "2"], 3, 5)
    assert shared.read(topic, offset=5) == {"messages": [], "next_offset": 5, "high_watermark": 5}


def test_a_page_never_holds_more_than_a_thousand(shared: Any, topic: str) -> None:
    shared.publish(topic, *({"value": "x"} for _ in range(1_200)))
    assert len(shared.read(topic, limit=5_000)["messages"]) == 1_000
    assert len(shared.read(topic)["messages"]) == 100


def test_the_limit_is_reached_across_pieces_and_segments(shared: Any) -> None:
    topic = shared.topic(next(names), segment_bytes=16_384)
    for n in range(60):
        shared.publish(topic, {"value": str(n) + "x" * 4_000})
    assert len(shared.client.get(f"/topics/{topic}/partitions").json()["partitions"]) == 1
    page = shared.read(topic, limit=50)
    assert [value.rstrip("x") for value in values(page)] == [str(n) for n in range(50)]


def test_max_bytes_bounds_a_page_but_one_message_always_fits(shared: Any, topic: str) -> None:
    shared.publish(topic, *({"value": "x" * 1_000} for _ in range(10)))
    assert len(shared.read(topic, max_bytes=3_500)["messages"]) == 3
    assert len(shared.read(topic, max_bytes=1)["messages"]) == 1


def test_earliest_and_latest_are_offsets_too(shared: Any, topic: str) -> None:
    shared.publish(topic, {"value": "a"}, {"value": "b"})
    assert values(shared.read(topic, offset="earliest")) == ["a", "b"]
    assert shared.read(topic, offset="latest") == {"messages": [], "next_offset": 2, "high_watermark": 2}


def test_a_time_is_milliseconds_or_rfc_3339(shared: Any, topic: str) -> None:
    first = shared.publish(topic, {"value": "a"}).json()["results"][0]["timestamp"]
    while int(time.time() * 1000) <= first:
        pass
    second = shared.publish(topic, {"value": "b"}).json()["results"][0]["timestamp"]
    assert second > first
    assert values(shared.read(topic, timestamp=first)) == ["a", "b"]
    assert values(shared.read(topic, timestamp=second)) == ["b"]
    text = datetime.fromtimestamp(second / 1000, UTC).isoformat(timespec="milliseconds")
    assert values(shared.read(topic, timestamp=text)) == ["b"]
    assert values(shared.read(topic, timestamp=text.replace("+00:00", "Z"))) == ["b"]
    assert shared.read(topic, timestamp="2199-01-01T00:00:00Z")["next_offset"] == 2
    assert values(shared.read(topic, timestamp="1960-01-01T00:00:00Z")) == ["a", "b"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_both_isolations_are_understood(shared: Any, topic: str, isolation: str) -> None:
    shared.publish(topic, {"value": "a"})
    assert values(shared.read(topic, isolation=isolation)) == ["a"]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("offset=-1", "INVALID_REQUEST"),
        ("offset=", "INVALID_REQUEST"),
        ("offset=x", "INVALID_REQUEST"),
        ("offset=1.5", "INVALID_REQUEST"),
        ("offset=%D9%A3", "INVALID_REQUEST"),
        ("offset=" + "9" * 5_000, "INVALID_REQUEST"),
        ("offset=2", "OFFSET_OUT_OF_RANGE"),
        ("offset=999999999999999999", "OFFSET_OUT_OF_RANGE"),
        ("offset=0&timestamp=0", "INVALID_REQUEST"),
        ("offset=0&offset=1", "INVALID_REQUEST"),
        ("ofset=0", "INVALID_REQUEST"),
        ("timestamp=yesterday", "INVALID_REQUEST"),
        ("timestamp=2026-02-30T00:00:00Z", "INVALID_REQUEST"),
        ("timestamp=2026-01-01T00:00:00", "INVALID_REQUEST"),
        ("timestamp=9999-12-31T23:59:59-23:59", "INVALID_REQUEST"),
        ("timestamp=999999999999999999", "INVALID_REQUEST"),
        ("limit=0", "INVALID_REQUEST"),
        ("limit=-5", "INVALID_REQUEST"),
        ("limit=many", "INVALID_REQUEST"),
        ("max_bytes=0", "INVALID_REQUEST"),
        ("isolation=none", "INVALID_REQUEST"),
        ("encoding=hex", "INVALID_REQUEST"),
        ("wait=soon", "INVALID_REQUEST"),
        ("wait=-1", "INVALID_REQUEST"),
        ("&".join(f"a{n}=1" for n in range(100)), "INVALID_REQUEST"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(shared: Any, topic: str, query: str, code: str) -> None:
    shared.publish(topic, {"value": "a"})
    answer = shared.client.get(f"/topics/{topic}/partitions/0/messages?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/nowhere/partitions/0/messages", 404, "TOPIC_NOT_FOUND"),
        ("/topics/{topic}/partitions/1/messages", 404, "PARTITION_NOT_FOUND"),
        ("/topics/{topic}/partitions/-1/messages", 400, "INVALID_REQUEST"),
        ("/topics/{topic}/partitions/x/messages", 400, "INVALID_REQUEST"),
        ("/topics/{topic}/partitions/9999999999/messages", 400, "INVALID_REQUEST"),
        ("/topics/{topic}/partitions//messages", 400, "INVALID_REQUEST"),
    ],
)
def test_a_place_that_is_not_there_is_named(shared: Any, topic: str, path: str, status: int, code: str) -> None:
    answer = shared.client.get(path.format(topic=topic))
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


# -- long polls -------------------------------------------------------------------------------------------------


def poll(shared: Any, pool: ThreadPoolExecutor, topic: str, **parameters: Any) -> Future[Any]:
    """A long poll that waits by the time this returns."""
    waiting = pool.submit(shared.read, topic, **parameters)
    shared.wait_until(lambda: shared.readers(topic) == 1)
    return waiting


@pytest.mark.parametrize("wait", ["30s", "PT30S", 30_000])
def test_a_long_poll_wakes_with_the_first_message(
    shared: Any, topic: str, pool: ThreadPoolExecutor, wait: object
) -> None:
    waiting = poll(shared, pool, topic, offset=0, wait=wait)
    published = time.monotonic()
    shared.publish(topic, {"value": "a"})
    assert values(waiting.result(10)) == ["a"]
    assert time.monotonic() - published < 1
    assert shared.call(lambda: shared.readers(topic)) == 0


def test_a_long_poll_from_latest_sees_only_what_comes(shared: Any, topic: str, pool: ThreadPoolExecutor) -> None:
    shared.publish(topic, {"value": "old"})
    waiting = poll(shared, pool, topic, offset="latest", wait="30s")
    shared.publish(topic, {"value": "new"})
    assert values(waiting.result(10)) == ["new"]


def test_a_long_poll_does_not_wait_for_what_is_there(shared: Any, topic: str) -> None:
    shared.publish(topic, {"value": "a"})
    assert values(shared.read(topic, offset=0, wait="30s")) == ["a"]


def test_a_long_poll_ends_empty_when_its_time_is_over(shared: Any, topic: str) -> None:
    assert shared.read(topic, offset=0, wait="20ms") == {"messages": [], "next_offset": 0, "high_watermark": 0}
    assert shared.call(lambda: shared.readers(topic)) == 0


def test_a_long_poll_for_bytes_wakes_too(shared: Any, topic: str, pool: ThreadPoolExecutor) -> None:
    path = f"/topics/{topic}/partitions/0/messages?wait=30s"
    waiting = pool.submit(shared.client.get, path, headers={"accept": "application/octet-stream"})
    shared.wait_until(lambda: shared.readers(topic) == 1)
    shared.publish(topic, {"value": "a"})
    assert waiting.result(10).headers["goqueue-next-offset"] == "1"


def test_a_long_poll_ends_when_the_client_goes_away(shared: Any, topic: str) -> None:
    connection = socket.create_connection((shared.host, shared.port))
    connection.sendall(f"GET /topics/{topic}/partitions/0/messages?wait=60s HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    shared.wait_until(lambda: shared.readers(topic) == 1)
    connection.close()
    shared.wait_until(lambda: shared.readers(topic) == 0)


def test_a_long_poll_on_a_topic_that_is_deleted_says_so(shared: Any, topic: str, pool: ThreadPoolExecutor) -> None:
    waiting = pool.submit(shared.client.get, f"/topics/{topic}/partitions/0/messages?wait=30s")
    shared.wait_until(lambda: shared.readers(topic) == 1)
    shared.client.delete(f"/topics/{topic}")
    answer = waiting.result(10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "TOPIC_NOT_FOUND")


def test_a_long_poll_is_answered_when_the_server_stops(start: Any, pool: ThreadPoolExecutor) -> None:
    server = start()
    topic = server.topic("t")
    waiting = pool.submit(server.read, topic, wait="60s")
    server.wait_until(lambda: server.readers(topic) == 1)
    server.run(server.server.stop())
    assert waiting.result(10)["messages"] == []


def test_waiting_is_cut_to_the_brokers_maximum(start: Any) -> None:
    server = start(broker={"wait_max_ms": 20})
    topic = server.topic("t")
    assert server.read(topic, wait="1000h")["messages"] == []


# -- damage -----------------------------------------------------------------------------------------------------


def test_damaged_data_is_named_and_the_rest_stays_readable(start: Any) -> None:
    server = start()
    topic = server.topic("t", segment_bytes=8_192)
    for n in range(20):
        server.publish(topic, {"value": str(n) + "x" * 2_000}, acks="all")
    server.stop()
    first, *_ = sorted((server.path / "logs" / topic / "0").glob("*.log"))
    data = bytearray(first.read_bytes())
    data[100] ^= 0xFF
    first.write_bytes(data)
    again = start(server.path)
    answer = again.client.get(f"/topics/{topic}/partitions/0/messages?offset=0")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "DATA_DAMAGED")
    after = answer.json()["error"]["to_offset"]
    assert values(again.read(topic, offset=after))[0].rstrip("x") == str(after)
    assert again.client.get("/readyz").status_code == 503
    assert again.client.get("/health").json()["status"] == "degraded"
