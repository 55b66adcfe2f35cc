"""The world outside the process: clock, disk, network, entropy.

Everything that can fail, tear, delay or lie comes in through these four protocols, so that the simulator can replace
them all. The `Os*` versions are thin; the faulty twins live in `goqueue.testing`.
"""

from goqueue.host.clock import Clock, OsClock
from goqueue.host.disk import Buffer, DirectoryLock, Disk, File, OsDisk
from goqueue.host.entropy import Entropy, OsEntropy
from goqueue.host.network import Connection, Listener, Network, OsNetwork, ServeTasks

__all__ = [
    "Buffer",
    "Clock",
    "Connection",
    "DirectoryLock",
    "Disk",
    "Entropy",
    "File",
    "Listener",
    "Network",
    "OsClock",
    "OsDisk",
    "OsEntropy",
    "OsNetwork",
    "ServeTasks",
]
