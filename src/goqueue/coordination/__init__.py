"""Runs pure machines: their records go to an internal log, are made durable, and are replayed from it."""

from goqueue.coordination.futures import settler
from goqueue.coordination.machine_log import MachineLog

__all__ = ["MachineLog", "settler"]
