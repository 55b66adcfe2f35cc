"""The worked example of docs/formats/record.md is what the code writes and reads, byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

from goqueue.record import BatchBuilder, Flag, decode, verify
from goqueue.testing import reference

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "record.md"
TIME_NS = 1_700_000_000_000_000_000


def example() -> bytes:
    (block,) = re.findall(r"```hex\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    # Two spaces or more part the bytes from their explanation.
    return b"".join(bytes.fromhex(re.split(r" {2,}", line)[0]) for line in block.splitlines())


def test_the_example_is_what_the_builder_writes() -> None:
    builder = BatchBuilder()
    builder.add(b"value", b"key", [("h", b"\x01")], priority=1, timestamp_ns=TIME_NS, offset=42)
    builder.add(None, None, timestamp_ns=TIME_NS + 1, offset=43)
    commit = int(Flag.CONTROL | Flag.COMMIT)
    builder.add(b"", b"\0\0", timestamp_ns=TIME_NS + 2, offset=44, flags=commit)
    assert builder.take() == example()


def test_the_example_reads_back_in_kernel_and_reference() -> None:
    assert verify(example()).count == reference.verify(example()).count == 3
    first, second, third = decode(example())
    assert (first.offset, first.key, first.value, first.headers) == (42, b"key", b"value", (("h", b"\x01"),))
    assert (second.offset, second.key, second.value) == (43, None, None)
    assert (third.offset, third.key, third.value, third.flags) == (44, b"\0\0", b"", 0x18)
