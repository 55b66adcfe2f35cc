"""The asyncio client: topics, producers, readers.

async with Client("127.0.0.1:9000") as client:
    await client.create_topic("orders")
    result = await client.send("orders", b"hello", key=b"k")
    async for message in client.reader("orders", follow=False):
        print(message.offset, message.value)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from goqueue.client.consumer import Consumer, ConsumerConfig
from goqueue.client.delays import Delay, Moment, delay_fields
from goqueue.client.group_admin import GroupAdmin
from goqueue.client.link import Link
from goqueue.client.producer import Headers, Producer, ProducerConfig, SendResult
from goqueue.client.reader import Reader, Start
from goqueue.errors import ConfigurationError
from goqueue.protocol import wire
from goqueue.protocol.wire import Api, Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    client_id: str = "goqueue-python"
    connect_timeout_ms: int = 10_000
    # Bytes of one fetch; larger is faster, smaller is sooner.
    fetch_bytes_max: int = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchedBlock:
    """Records of one segment, verified by nobody yet, and the bounds of their partition."""

    data: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Client(GroupAdmin):
    def __init__(self, address: str = "127.0.0.1:9000", config: ClientConfig | None = None) -> None:
        """Connects when first used. `address` is HOST:PORT of the broker's wire port."""
        self._config = config or ClientConfig()
        host, port = parse_address(address)
        # Two connections, so that a publish never waits behind a block of fetched records.
        self._address = host, port
        self._control = self._link(host, port)
        self._fetching = self._link(host, port)
        self._consumers: list[Consumer] = []
        self._producer: Producer | None = None
        self._producers: list[Producer] = []

    def _link(self, host: str, port: int) -> Link:
        return Link(host, port, client_id=self._config.client_id, connect_timeout_ms=self._config.connect_timeout_ms)

    async def __aenter__(self) -> Client:
        await self._control.connection()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Flush every producer, let every consumer leave its group, and end the connections."""
        for consumer in self._consumers:
            await consumer.close()
        for producer in self._producers:
            await producer.close()
        await self._control.close()
        await self._fetching.close()

    # -- messages -----------------------------------------------------------------------------------------------

    def producer(self, **options: Any) -> Producer:
        """A producer with its own buffer; options are the fields of `ProducerConfig`."""
        producer = Producer(self._control, ProducerConfig(**options))
        self._producers.append(producer)
        return producer

    async def send(
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
        """Publish one message durably and return where it is. For many messages use a producer.

        `delay` (seconds or a timedelta, by the broker's clock) or `deliver_at` (seconds since 1970 or a datetime) hides
        it until then."""
        if self._producer is None:
            self._producer = self.producer(linger_ms=0)
        return await self._producer.send_and_wait(topic, value, key, headers, priority, partition, delay, deliver_at)

    def reader(
        self,
        topic: str,
        *,
        partitions: Sequence[int] | None = None,
        start: Start = "earliest",
        follow: bool = True,
        isolation: str = "read_committed",
    ) -> Reader:
        """Read a topic from `start` on; without `follow` it ends where the topic ended when reading began."""
        return Reader(
            self._fetching,
            topic,
            partitions=partitions,
            start=start,
            follow=follow,
            bytes_max=self._config.fetch_bytes_max,
            isolation=isolation_level(isolation),
        )

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        bytes_max: int | None = None,
        wait_ms: int = 0,
        isolation: str = "read_committed",
    ) -> FetchedBlock:
        """Whole records as they are stored (docs/formats/record.md), from `offset` on; for those who decode
        themselves."""
        body = wire.fetch_body(
            wire.route(topic, partition),
            offset=offset,
            bytes_max=bytes_max or self._config.fetch_bytes_max,
            wait_ms=wait_ms,
            isolation=isolation_level(isolation),
        )
        answer = memoryview(await (await self._fetching.connection()).request(Api.FETCH, body))
        size = wire.FETCH_REPLY_BODY.size
        return FetchedBlock(answer[size:], *wire.FETCH_REPLY_BODY.unpack(answer[:size]))

    async def log_layout(self, topic: str) -> dict[str, Any]:
        """Bounds and sealed segments of a topic's partitions, and the broker's data directory."""
        return dict(await self._call("log.layout", topic=topic))

    async def offset_at_time(self, topic: str, partition: int, timestamp_ns: int) -> int | None:
        """The first offset whose timestamp is at least that, None when there is none."""
        found = await self._call("offset.at_time", topic=topic, partition=partition, timestamp_ns=timestamp_ns)
        return None if found is None else int(found)

    async def set_pin(self, name: str, topic: str, offsets: dict[int, int], *, lifetime_ms: int | None = None) -> None:
        """Keep retention from removing anything from these offsets on; set again before it has outlived itself."""
        given = {} if lifetime_ms is None else {"lifetime_ms": lifetime_ms}
        by_partition = {str(number): offset for number, offset in offsets.items()}
        await self._call("pin.set", name=name, topic=topic, offsets=by_partition, **given)

    async def remove_pin(self, name: str) -> bool:
        """Whether there was such a pin."""
        return bool(await self._call("pin.remove", name=name))

    async def list_pins(self) -> list[dict[str, Any]]:
        return list(await self._call("pin.list"))

    def consumer(self, group: str, topics: Sequence[str], **options: Any) -> Consumer:
        """A member of a consumer group, with connections of its own; options are the fields of `ConsumerConfig`."""
        links = self._link(*self._address), self._link(*self._address)
        consumer = Consumer(*links, group, topics, self._config.client_id, ConsumerConfig(**options))
        self._consumers.append(consumer)
        return consumer

    # -- delayed messages ---------------------------------------------------------------------------------------

    async def delayed(self, topic: str, *, limit: int = 100, skip: int = 0) -> list[dict[str, Any]]:
        """Messages of a topic that wait for their time, the earliest first."""
        return list((await self._call("delay.list", topic=topic, limit=limit, skip=skip))["messages"])

    async def get_delayed(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """State and time of one delayed message."""
        return dict(await self._call("delay.get", topic=topic, partition=partition, offset=offset))

    async def cancel_delayed(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """Cancel a message; `cancelled` in the answer is False when it is released already."""
        return dict(await self._call("delay.cancel", topic=topic, partition=partition, offset=offset))

    async def reschedule_delayed(
        self, topic: str, partition: int, offset: int, *, delay: Delay | None = None, deliver_at: Moment | None = None
    ) -> dict[str, Any]:
        """Give a pending message another time."""
        times = delay_fields(delay, deliver_at)
        return dict(await self._call("delay.reschedule", topic=topic, partition=partition, offset=offset, **times))

    async def delay_statistics(self) -> dict[str, Any]:
        return dict(await self._call("delay.stats"))

    # -- topics -------------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, partitions: int = 3, config: dict[str, object] | None = None
    ) -> dict[str, Any]:
        return dict(await self._call("topic.create", name=name, partitions=partitions, settings=config or {}))

    async def alter_topic(self, name: str, config: dict[str, object]) -> dict[str, Any]:
        return dict(await self._call("topic.alter", name=name, settings=config))

    async def delete_topic(self, name: str) -> None:
        await self._call("topic.delete", name=name)

    async def describe_topic(self, name: str) -> dict[str, Any]:
        return dict(await self._call("topic.describe", name=name))

    async def list_topics(self) -> list[dict[str, Any]]:
        return list(await self._call("topic.list"))

    async def status(self) -> dict[str, Any]:
        """Whether the broker is ready, and why not."""
        return dict(await self._call("status"))

    async def _call(self, method: str, **arguments: object) -> Any:
        connection = await self._control.connection()
        return await connection.call(method, **arguments)


_ISOLATION = {"read_committed": Isolation.READ_COMMITTED, "read_uncommitted": Isolation.READ_UNCOMMITTED}


def isolation_level(name: str) -> Isolation:
    if name not in _ISOLATION:
        raise ConfigurationError(f"isolation must be one of {', '.join(_ISOLATION)}, not {name!r}")
    return _ISOLATION[name]


def parse_address(address: str) -> tuple[str, int]:
    """HOST:PORT, or [HOST]:PORT for IPv6."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError(f"{address!r} is not HOST:PORT")
    return host, int(port)
