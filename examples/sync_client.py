"""The blocking client, for code without an event loop.

Run a broker with `goqueue serve`, then `python examples/sync_client.py [HOST:PORT]`.
"""

import contextlib
import sys

from goqueue.client import SyncClient
from goqueue.errors import TopicExistsError


def main(address: str) -> None:
    with SyncClient(address) as client:
        with contextlib.suppress(TopicExistsError):
            client.create_topic("events", partitions=1)

        result = client.send("events", b"hello")
        print(f"stored at offset {result.offset}")

        with client.producer() as producer:
            futures = [producer.send("events", b"event %d" % n) for n in range(100)]
            print(f"the last of 100 is at offset {futures[-1].result().offset}")

        for message in client.reader("events", partitions=[0], start=result.offset, follow=False):
            if message.offset < result.offset + 3:
                print(message.offset, message.value)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000")
