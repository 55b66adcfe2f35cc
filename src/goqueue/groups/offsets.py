"""Committed offsets: the next offset a group will read of a partition, and the bytes of the record that says so.

Value: version u8 = 1, offset i64, committed_ms i64, topic id (16 bytes), metadata (UTF-8, the rest). The topic id binds
an offset to a topic: when one is deleted and created again, offsets of the old one do not apply.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

_VALUE = struct.Struct(">Bqq16s")
_VERSION = 1


class Committed(NamedTuple):
    offset: int
    committed_ms: int
    topic_id: bytes
    metadata: str


class Commit(NamedTuple):
    """One partition of a commit request; that the topic exists and reaches this far is checked before."""

    topic: str
    partition: int
    offset: int
    topic_id: bytes
    metadata: str


def encode_offset(commit: Commit, now_ms: int) -> bytes:
    return _VALUE.pack(_VERSION, commit.offset, now_ms, commit.topic_id) + commit.metadata.encode()


def decode_offset(data: bytes) -> Committed:
    version, offset, committed_ms, topic_id = _VALUE.unpack_from(data)
    assert version == _VERSION, "written by a later version"
    return Committed(offset, committed_ms, topic_id, data[_VALUE.size :].decode())
