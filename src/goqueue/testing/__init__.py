"""Faulty twins of the world outside: what tests and the simulator give to code instead of `goqueue.host`."""

from goqueue.testing.disk_faults import DiskOperation, Faults, SimulatedCrash
from goqueue.testing.sim_clock import SimClock, SimEventLoop, run_simulated
from goqueue.testing.sim_disk import DiskSnapshot, SimDisk
from goqueue.testing.sim_entropy import SimEntropy
from goqueue.testing.sim_file import DiskStatistics, SimFile
from goqueue.testing.sim_network import NetworkFaults, SimHost, SimNetwork

__all__ = [
    "DiskOperation",
    "DiskSnapshot",
    "DiskStatistics",
    "Faults",
    "NetworkFaults",
    "SimClock",
    "SimDisk",
    "SimEntropy",
    "SimEventLoop",
    "SimFile",
    "SimHost",
    "SimNetwork",
    "SimulatedCrash",
    "run_simulated",
]
