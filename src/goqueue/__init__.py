"""GoQueue: a message broker that joins a replayable log with per-message delivery.

Importing the root costs nothing: it imports no other module of the package.
"""

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"
