"""`python -m goqueue.storage DIR`: open a data directory, recover it, and print what is in it as JSON lines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from goqueue.errors import GoQueueError
from goqueue.host import OsDisk, OsEntropy
from goqueue.storage.directory import DataDirectory


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m goqueue.storage DIRECTORY", file=sys.stderr)
        return 2
    try:
        directory = DataDirectory.open(OsDisk(), arguments[0], OsEntropy())
    except (GoQueueError, OSError) as error:
        print(f"goqueue: {error}", file=sys.stderr)
        return 1
    try:
        partitions = directory.partitions()
        print(json.dumps({"directory": directory.path, "partitions": len(partitions)}))
        for partition in partitions:
            log = directory.open_log(partition)
            print(json.dumps({"partition": str(partition), **asdict(log.statistics()), "recovery": asdict(log.report)}))
    finally:
        directory.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
