"""A whole broker inside this process: for tests and small applications. Needs nothing running.

`python examples/embedded.py [DIRECTORY]`; without a directory the data goes when the program ends.
"""

import sys

import goqueue


def main(path: str | None) -> None:
    with goqueue.open(path) as queue:
        if not any(topic["name"] == "notes" for topic in queue.list_topics()):
            queue.create_topic("notes", partitions=1)
        queue.send("notes", b"remember the milk")
        for message in queue.reader("notes", follow=False):
            print(message.offset, message.value)
        # Other processes can join while this one runs.
        print(f"other clients connect to {queue.address}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
