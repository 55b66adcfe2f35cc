"""The storage simulator: random operations, faults and crashes on a simulated disk, held against a model."""

from goqueue.testing.simulation.log_model import SimulationFailure
from goqueue.testing.simulation.storage_run import StorageRun

__all__ = ["SimulationFailure", "StorageRun"]
