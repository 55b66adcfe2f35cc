"""The asyncio client: a topic, a producer, a reader.

Run a broker with `goqueue serve`, then `python examples/produce_consume.py [HOST:PORT]`.
"""

import asyncio
import contextlib
import sys

from goqueue.client import Client
from goqueue.errors import TopicExistsError


async def main(address: str) -> None:
    async with Client(address) as client:
        with contextlib.suppress(TopicExistsError):
            await client.create_topic("orders", partitions=3)

        # One message, durable when this returns.
        result = await client.send("orders", b'{"id": 1}', key=b"customer-7", headers=[("kind", "created")])
        print(f"stored in partition {result.partition} at offset {result.offset}")

        # Many messages: the producer gathers them into batches; each future is the result of its message.
        async with client.producer(linger_ms=5) as producer:
            futures = [await producer.send("orders", b"order %d" % n, key=b"customer-%d" % n) for n in range(1000)]
        print(f"{len([future.result() for future in futures])} more are durable")

        # Read everything that is there now, in log order per partition. With follow=True it waits for more.
        count = 0
        async for message in client.reader("orders", start="earliest", follow=False):
            assert message.value is not None
            count += 1
        print(f"read {count} messages")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000"))
