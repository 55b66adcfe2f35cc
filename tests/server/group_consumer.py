"""A consumer in a process of its own: `python group_consumer.py ADDRESS GROUP TOPIC FILE`.

Every message that it has processed is a line in the file before it asks for the next one.
"""

from __future__ import annotations

import asyncio
import sys

from goqueue.client import Client


async def main(address: str, group: str, topic: str, path: str) -> None:
    with open(path, "ab", buffering=0) as out:
        async with Client(address) as client:
            consumer = client.consumer(group, [topic], session_timeout_ms=1_500, auto_commit_interval_ms=100)
            while batch := await consumer.batch():
                out.write(b"".join(b"%d %d\n" % (message.partition, message.offset) for message in batch))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
