"""The blocking facade and the broker inside a process."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

import goqueue
from goqueue.client import Client, SyncClient
from goqueue.errors import (
    ConfigurationError,
    ConnectionLostError,
    DirectoryLockedError,
    GoQueueError,
    TopicExistsError,
)
from tests.client.brokers import wait_until


def test_the_blocking_client_does_what_the_asyncio_client_does(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as queue, SyncClient(queue.address) as client:
        assert client.create_topic("t", partitions=2)["partitions"] == 2
        with pytest.raises(TopicExistsError):
            client.create_topic("t")
        assert client.send("t", b"one", partition=0).offset == 0
        with client.producer() as producer:
            futures = [producer.send("t", b"%d" % n, partition=1) for n in range(100)]
            assert [run.count for run in producer.send_many("t", [b"x"] * 5, partition=0)] == [5]
            producer.flush()
            assert [future.result().offset for future in futures] == list(range(100))
        assert len(list(client.reader("t", follow=False))) == 106
        assert next(iter(client.reader("t", partitions=[0], start=0, follow=False))).value == b"one"
        assert client.alter_topic("t", {"retention_ms": 5000})["config"]["retention_ms"] == 5000
        assert client.describe_topic("t")["total_messages"] == 106
        assert [topic["name"] for topic in client.list_topics()] == ["t"]
        assert client.status()["ready"] is True
        client.delete_topic("t")
        assert client.list_topics() == []


def test_a_followed_reader_can_be_left_at_any_message(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as queue:
        queue.create_topic("t", partitions=1)
        for n in range(3):
            queue.send("t", b"%d" % n)
        for message in queue.reader("t", follow=True):
            if message.offset == 2:
                break
        assert queue.send("t", b"x").offset == 3


def test_threads_share_a_client(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)) as queue:
        queue.create_topic("t", partitions=1)
        threads = [threading.Thread(target=lambda: [queue.send("t", b"x") for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [m.offset for m in queue.reader("t", follow=False)] == list(range(80))


def test_reopening_a_directory_keeps_its_data(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path / "data")) as queue:
        queue.create_topic("t", partitions=1, config={"retention_ms": 1234567})
        queue.send("t", b"kept", key=b"k", headers=[("h", "v")], priority=4)
    with goqueue.open(str(tmp_path / "data")) as queue:
        (message,) = queue.reader("t", follow=False)
        assert (message.value, message.key, message.priority) == (b"kept", b"k", 4)
        assert message.headers == (("h", b"v"),)
        assert queue.describe_topic("t")["config"]["retention_ms"] == 1234567


def test_a_directory_belongs_to_one_broker_and_is_free_after_it(tmp_path: Path) -> None:
    with goqueue.open(str(tmp_path)), pytest.raises(DirectoryLockedError):
        goqueue.open(str(tmp_path))
    with goqueue.open(str(tmp_path)) as queue:
        assert queue.status()["ready"]


def test_a_broker_without_a_path_leaves_nothing_behind() -> None:
    with goqueue.open() as queue:
        queue.create_topic("t")
        queue.send("t", b"x")
        path = queue._temporary
        assert os.path.isdir(path)
    assert not os.path.exists(path)


def test_an_unreachable_broker_is_named(unused_port: int) -> None:
    with pytest.raises(ConnectionLostError, match=f"no broker answers at 127.0.0.1:{unused_port}"):
        SyncClient(f"127.0.0.1:{unused_port}")


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:port", ":9000", "h:70000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        SyncClient(address)


def test_a_peer_that_is_no_broker_is_told_apart() -> None:
    async def run() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(GoQueueError) as caught:
            async with Client(f"127.0.0.1:{port}"):
                pass
        assert caught.value.code == "PROTOCOL_ERROR"
        server.close()
        await wait_until(lambda: not server.is_serving())

    asyncio.run(run())
