"""The blocking facade: the asyncio client on an event loop in a thread of its own, for code that has none."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import Any, TypeVar

from goqueue.client.client import Client, ClientConfig, FetchedBlock
from goqueue.client.consumer import Consumer
from goqueue.client.delays import Delay, Moment
from goqueue.client.producer import Headers, Producer, SendManyResult, SendResult
from goqueue.client.reader import Reader, Start
from goqueue.record import Record

T = TypeVar("T")


class LoopThread:
    """An event loop that runs in a daemon thread until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry `work` out on the loop and return its result here."""
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def _cancel_rest(self) -> None:
        """End what nobody waits for any more, such as the read that Ctrl-C interrupted."""
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def close(self) -> None:
        self.run(self._cancel_rest())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class SyncProducer:
    """A producer for threads: `send` returns a future, `flush` waits for all."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
    ) -> Future[SendResult]:
        """Hand a message over; the future is its result."""
        return self._thread.submit(
            self._producer.send_and_wait(topic, value, key, headers, priority, partition, delay, deliver_at)
        )

    def send_many(self, topic: str, values: Sequence[bytes], *, partition: int | None = None) -> list[SendManyResult]:
        """Send many keyless messages and wait until all are answered."""
        return self._thread.run(self._producer.send_many(topic, values, partition=partition))

    def flush(self) -> None:
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        self._thread.run(self._producer.close())

    def __enter__(self) -> SyncProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncReader:
    """Iterate messages, blocking for the next one."""

    def __init__(self, thread: LoopThread, reader: Reader) -> None:
        self._thread = thread
        self._reader = reader

    def __iter__(self) -> Iterator[Record]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Generator[list[Record]]:
        """Messages in lists as they arrive."""
        source = self._reader.batches()

        async def following() -> list[Record] | None:
            return await anext(source, None)

        try:
            while (batch := self._thread.run(following())) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        self._thread.run(self._reader.close())


class SyncConsumer:
    """A member of a consumer group for threads; callbacks run on the thread of the client."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self._thread = thread
        self._consumer = consumer

    def __enter__(self) -> SyncConsumer:
        self._thread.run(self._consumer.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        """Messages, blocking for the next one; coming back for it says that the one before is finished."""

        async def following() -> Record | None:
            return await anext(self._consumer, None)

        while (message := self._thread.run(following())) is not None:
            yield message

    def batch(self, timeout_ms: int | None = None) -> list[Record]:
        """The next messages, all of one partition; none when the time is over."""
        return self._thread.run(self._consumer.batch(timeout_ms))

    def commit(self, offsets: Mapping[tuple[str, int], int | tuple[int, str]] | None = None) -> None:
        self._thread.run(self._consumer.commit(offsets))

    def assignment(self) -> list[tuple[str, int]]:
        return self._on_loop(self._consumer.assignment)

    def position(self, topic: str, partition: int) -> int:
        return self._on_loop(lambda: self._consumer.position(topic, partition))

    def seek(self, topic: str, partition: int, offset: int) -> None:
        self._on_loop(lambda: self._consumer.seek(topic, partition, offset))

    def pause(self, topic: str, partition: int) -> None:
        self._on_loop(lambda: self._consumer.pause(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        self._on_loop(lambda: self._consumer.resume(topic, partition))

    def close(self) -> None:
        """Commit what is finished and leave the group."""
        self._thread.run(self._consumer.close())

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self._thread.run(called())


class SyncClient:
    """The same methods as `Client`, blocking."""

    def __init__(self, address: str = "127.0.0.1:9000", config: ClientConfig | None = None) -> None:
        self._thread = LoopThread("goqueue-client")
        try:
            self._client = self._thread.run(self._connect(address, config))
        except BaseException:
            self._thread.close()
            raise

    async def _connect(self, address: str, config: ClientConfig | None) -> Client:
        return await Client(address, config).__aenter__()

    def __enter__(self) -> SyncClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._thread.run(self._client.close())
        self._thread.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: Headers | None = None,
        priority: int = 2,
        partition: int | None = None,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
    ) -> SendResult:
        """Publish one message durably and return where it is."""
        return self._thread.run(self._client.send(topic, value, key, headers, priority, partition, delay, deliver_at))

    def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[dict[str, Any]]:
        return self._thread.run(self._client.delayed(topic, limit=limit, skip=skip))

    def get_delayed(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        return self._thread.run(self._client.get_delayed(topic, partition, offset))

    def cancel_delayed(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        return self._thread.run(self._client.cancel_delayed(topic, partition, offset))

    def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Delay | None = None, deliver_at: Moment | None = None
    ) -> dict[str, Any]:
        return self._thread.run(
            self._client.reschedule_delayed(topic, partition, offset, delay=delay, deliver_at=deliver_at)
        )

    def delay_statistics(self) -> dict[str, Any]:
        return self._thread.run(self._client.delay_statistics())

    def producer(self, **options: Any) -> SyncProducer:
        async def make() -> Producer:
            return self._client.producer(**options)

        return SyncProducer(self._thread, self._thread.run(make()))

    def reader(
        self,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "earliest",
        follow: bool = True,
        isolation: str = "read_committed",
    ) -> SyncReader:
        reader = self._client.reader(topic, partitions=partitions, start=start, follow=follow, isolation=isolation)
        return SyncReader(self._thread, reader)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int | None = None,
        wait_ms: int = 0,
        isolation: str = "read_committed",
    ) -> FetchedBlock:
        return self._thread.run(
            self._client.fetch(topic, partition, offset, bytes_max=bytes_max, wait_ms=wait_ms, isolation=isolation)
        )

    def log_layout(self, topic: str) -> dict[str, Any]:
        return self._thread.run(self._client.log_layout(topic))

    def offset_at_time(self, topic: str, partition: int, timestamp_ns: int) -> int | None:
        return self._thread.run(self._client.offset_at_time(topic, partition, timestamp_ns))

    def set_pin(self, name: str, topic: str, offsets: dict[int, int], *, lifetime_ms: int | None = None) -> None:
        self._thread.run(self._client.set_pin(name, topic, offsets, lifetime_ms=lifetime_ms))

    def remove_pin(self, name: str) -> bool:
        return self._thread.run(self._client.remove_pin(name))

    def list_pins(self) -> list[dict[str, Any]]:
        return self._thread.run(self._client.list_pins())

    def consumer(self, group: str, topics: Sequence[str], **options: Any) -> SyncConsumer:
        async def make() -> Consumer:
            return self._client.consumer(group, topics, **options)

        return SyncConsumer(self._thread, self._thread.run(make()))

    def create_topic(
        self, name: str, *, partitions: int = 3, config: dict[str, object] | None = None
    ) -> dict[str, Any]:
        return self._thread.run(self._client.create_topic(name, partitions=partitions, config=config))

    def alter_topic(self, name: str, config: dict[str, object]) -> dict[str, Any]:
        return self._thread.run(self._client.alter_topic(name, config))

    def delete_topic(self, name: str) -> None:
        self._thread.run(self._client.delete_topic(name))

    def describe_topic(self, name: str) -> dict[str, Any]:
        return self._thread.run(self._client.describe_topic(name))

    def list_topics(self) -> list[dict[str, Any]]:
        return self._thread.run(self._client.list_topics())

    def status(self) -> dict[str, Any]:
        return self._thread.run(self._client.status())

    # -- groups -------------------------------------------------------------------------------------------------

    def list_groups(self) -> list[dict[str, Any]]:
        return self._thread.run(self._client.list_groups())

    def describe_group(self, group: str) -> dict[str, Any]:
        return self._thread.run(self._client.describe_group(group))

    def delete_group(self, group: str) -> None:
        self._thread.run(self._client.delete_group(group))

    def group_offsets(self, group: str, topics: Sequence[str] | None = None) -> dict[str, Any]:
        return self._thread.run(self._client.group_offsets(group, topics))

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int | tuple[int, str]]) -> None:
        self._thread.run(self._client.commit_offsets(group, offsets))

    def reset_offsets(
        self,
        group: str,
        topic: str,
        to: str | int | datetime,
        *,
        partitions: Sequence[int] | None = None,
        dry_run: bool = False,
    ) -> dict[int, int]:
        return self._thread.run(self._client.reset_offsets(group, topic, to, partitions=partitions, dry_run=dry_run))

    def rebalance_stats(self, group: str) -> dict[str, Any]:
        return self._thread.run(self._client.rebalance_stats(group))
