"""Delayed messages of one partition: which are pending, and what became of the others. A pure machine."""

from goqueue.delays.index import Delayed, DelayIndex, DelayState
from goqueue.delays.records import (
    DUE_HEADER,
    ORIGIN_HEADER,
    DelayRecord,
    control_batch,
    due_header,
    read_control,
    release_batch,
)
from goqueue.delays.snapshot import DelaySnapshot

__all__ = [
    "DUE_HEADER",
    "ORIGIN_HEADER",
    "DelayIndex",
    "DelayRecord",
    "DelaySnapshot",
    "DelayState",
    "Delayed",
    "control_batch",
    "due_header",
    "read_control",
    "release_batch",
]
