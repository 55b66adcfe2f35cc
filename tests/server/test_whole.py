"""Everything at once on a real process: many producers, both faces, and names that must not become paths."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from goqueue.client import Client, SendResult, SyncClient
from goqueue.errors import GoQueueError
from tests.server.process import BrokerProcess, environment

PRODUCERS = 8
PARTITIONS = 4
MESSAGES = 100_000 // PRODUCERS

HOSTILE = [".", "..", "../x", "a/b", "/etc/x", "a\\b", "a\0b", "a b", "a\n", "ä", "", "x" * 250, "%2e%2e", "con:", "*"]


async def produce(address: str, producer_number: int) -> list[SendResult]:
    async with Client(address) as client:
        producer = client.producer(acks="all")
        futures = [
            await producer.send("t", b"%d:%d" % (producer_number, sequence), partition=sequence % PARTITIONS)
            for sequence in range(MESSAGES)
        ]
        return list(await asyncio.gather(*futures))


async def read_by_wire(address: str) -> dict[int, list[bytes]]:
    async with Client(address) as client:
        values: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        async for batch in client.reader("t", follow=False).batches():
            stored = values[batch[0].partition]
            assert [message.offset for message in batch] == list(range(len(stored), len(stored) + len(batch)))
            stored += [message.value or b"" for message in batch]
        return values


def read_by_http(base: str) -> dict[int, list[bytes]]:
    values: dict[int, list[bytes]] = {}
    with httpx.Client(base_url=base) as http:
        for number in range(PARTITIONS):
            stored: list[bytes] = []
            answer = {"next_offset": 0, "high_watermark": 1}
            while answer["next_offset"] < answer["high_watermark"]:
                path = f"/topics/t/partitions/{number}/messages"
                answer = http.get(path, params={"offset": answer["next_offset"], "limit": 1000}).json()
                assert [m["offset"] for m in answer["messages"]] == list(  # type: ignore[attr-defined]
                    range(len(stored), answer["next_offset"])
                )
                stored += [m["value"].encode() for m in answer["messages"]]  # type: ignore[attr-defined]
            values[number] = stored
    return values


def test_eight_producers_find_all_their_messages_in_order_by_wire_and_http(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:

        async def publish() -> list[list[SendResult]]:
            async with Client(broker.wire) as client:
                await client.create_topic("t", partitions=PARTITIONS)
            return await asyncio.gather(*(produce(broker.wire, number) for number in range(PRODUCERS)))

        results = asyncio.run(publish())
        by_wire = asyncio.run(read_by_wire(broker.wire))
        assert sum(map(len, by_wire.values())) == PRODUCERS * MESSAGES
        assert read_by_http(broker.http) == by_wire
    for number, acknowledged in enumerate(results):
        for sequence, result in enumerate(acknowledged):
            assert by_wire[result.partition][result.offset] == b"%d:%d" % (number, sequence)
        for partition in range(PARTITIONS):
            offsets = [result.offset for result in acknowledged if result.partition == partition]
            assert offsets == sorted(offsets), "the order of a producer is the order of the log"


def test_hostile_names_are_refused_by_every_face_and_touch_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, SyncClient(broker.wire) as client:
        client.create_topic("good", partitions=1)
        before = {path for path in tmp_path.rglob("*") if path.suffix != ".stderr"}
        for name in HOSTILE:
            for call in (client.create_topic, client.describe_topic, client.delete_topic):
                with pytest.raises(GoQueueError) as caught:
                    call(name)
                assert caught.value.code in {"NAME_INVALID", "TOPIC_NOT_FOUND"}, (call, name)
            with pytest.raises(GoQueueError):
                client.send(name, b"x")
            answer = httpx.post(f"{broker.http}/topics", json={"name": name, "num_partitions": 1})
            assert answer.status_code == 400, (name, answer.text)
            assert answer.json()["error"]["code"] == "NAME_INVALID"
            if name not in {"", ".", ".."}:
                url = f"{broker.http}/topics/{quote(name, safe='')}/messages"
                answer = httpx.post(url, json={"messages": [{"value": "x"}]})
                assert answer.status_code in {400, 404, 405}, (name, answer.text)
        with pytest.raises(GoQueueError):
            client.create_topic("__internal")
        assert {path for path in tmp_path.rglob("*") if path.suffix != ".stderr"} == before
        for name in ("..", "../x", "a/b"):
            command = [sys.executable, "-m", "goqueue", "topic", "create", name, "--address", broker.wire]
            result = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False, timeout=30)
            assert result.returncode == 1
            assert "NAME_INVALID" in result.stderr
        assert {path for path in tmp_path.rglob("*") if path.suffix != ".stderr"} == before
