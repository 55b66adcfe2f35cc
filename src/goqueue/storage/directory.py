"""A data directory: one process, one lock, the logs of its partitions.

LOCK                                held by the process that has the directory open
directory.meta                      format version and id of the directory, in two slots
logs/{topic}/{partition}/           one log each; names are validated before they become paths
trash/                              logs on their way out; emptied at the next start
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import struct
from dataclasses import dataclass

from goqueue.errors import DirectoryFormatError, DirectoryLockedError, InvalidNameError, InvalidRequestError
from goqueue.host import DirectoryLock, Disk, Entropy
from goqueue.model import TopicPartition, validate_name
from goqueue.storage.config import LogConfig
from goqueue.storage.log import CHECKPOINT_FILE, Log
from goqueue.storage.slots import SlotFile, read_slots
from goqueue.storage.warm import WarmSegments

FORMAT_VERSION = 1
PARTITION_MAX = 1_000_000
_META = struct.Struct(">H16s")
# As `log_path` writes it; whatever else lies there is not ours.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,6}")


@dataclass(frozen=True, slots=True)
class DirectoryMeta:
    format_version: int
    directory_id: bytes


class DataDirectory:
    def __init__(self, disk: Disk, path: str, lock: DirectoryLock, meta: DirectoryMeta, *, meta_restored: bool) -> None:
        self.disk = disk
        self.path = path
        self.meta = meta
        # The description was missing or damaged and has been written anew.
        self.meta_restored = meta_restored
        self._lock = lock
        self._open: dict[TopicPartition, Log] = {}
        self._warm = WarmSegments()

    @classmethod
    def open(cls, disk: Disk, path: str, entropy: Entropy) -> DataDirectory:
        """Create or open; `DirectoryLockedError` when another process has it."""
        disk.make_directory(path)
        try:
            lock = disk.lock(f"{path}/LOCK", f"{os.getpid():<10}\n")
        except BlockingIOError:
            raise DirectoryLockedError(
                f"the data directory {path} is in use by another process; stop it or choose another directory",
                path=path,
            ) from None
        try:
            meta, restored = _load_meta(disk, path, entropy)
            directory = cls(disk, path, lock, meta, meta_restored=restored)
            directory._empty_trash()
        except BaseException:
            lock.release()
            raise
        return directory

    def partitions(self) -> list[TopicPartition]:
        """Every partition on disk, open or not."""
        logs = f"{self.path}/logs"
        if not self.disk.exists(logs):
            return []
        found: list[TopicPartition] = []
        for topic in self.disk.list(logs):
            with contextlib.suppress(InvalidNameError, NotADirectoryError):
                names = self.disk.list(f"{logs}/{validate_name(topic)}")
                found += [TopicPartition(topic, int(name)) for name in names if _NUMBER.fullmatch(name)]
        return sorted(found)

    def open_log(self, partition: TopicPartition, config: LogConfig | None = None) -> Log:
        """Open or create the partition's log. A log is open at most once."""
        if partition in self._open:
            raise InvalidRequestError(f"the log of {partition} is already open", partition=str(partition))
        path = self.log_path(partition)
        if not self.disk.exists(f"{path}/{CHECKPOINT_FILE}"):
            self._make_durable(path)
        log = Log.open(self.disk, path, config, warm=self._warm)
        self._open[partition] = log
        return log

    def _make_durable(self, path: str) -> None:
        """A new log's directory. That it exists is not enough: the process that made it may have died before its
        sync."""
        self.disk.make_directory(path)
        self.disk.sync_directory(os.path.dirname(path))
        self.disk.sync_directory(f"{self.path}/logs")

    def close_log(self, partition: TopicPartition) -> None:
        log = self._open.pop(partition, None)
        if log is not None:
            log.close()

    def delete_log(self, partition: TopicPartition) -> None:
        """Close and remove a partition: gone at once by one rename, its bytes removed after that."""
        self.close_log(partition)
        source = self.log_path(partition)
        if not self.disk.exists(source):
            return
        trash = f"{self.path}/trash"
        self.disk.make_directory(trash)
        names = self.disk.list(trash)
        free = next(number for number in itertools.count() if str(number) not in names)
        self.disk.rename(source, f"{trash}/{free}")
        self.disk.sync_directory(trash)
        topic = os.path.dirname(source)
        self.disk.sync_directory(topic)
        if not self.disk.list(topic):
            self.disk.remove_directory(topic)
            self.disk.sync_directory(f"{self.path}/logs")
        self._empty_trash()

    def log_path(self, partition: TopicPartition) -> str:
        validate_name(partition.topic)
        if not 0 <= partition.partition <= PARTITION_MAX:
            raise InvalidRequestError(f"partition {partition.partition} is not from 0 to {PARTITION_MAX}")
        return f"{self.path}/logs/{partition.topic}/{partition.partition}"

    def close(self) -> None:
        """Close every log and release the directory."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            # On a stack, because one log's trouble must not leave the others open.
            for partition in list(self._open):
                stack.callback(self.close_log, partition)

    def _empty_trash(self) -> None:
        trash = f"{self.path}/trash"
        if not self.disk.exists(trash):
            return
        for name in self.disk.list(trash):
            for file in self.disk.list(f"{trash}/{name}"):
                self.disk.remove(f"{trash}/{name}/{file}")
            self.disk.remove_directory(f"{trash}/{name}")


def read_directory_id(disk: Disk, path: str) -> str:
    """The id of a data directory that somebody else may own, empty when it cannot be told; `OSError` if there is
    none."""
    payload = read_slots(disk, f"{path}/directory.meta")
    return "" if payload is None else str(_META.unpack(payload)[1].hex())


def _load_meta(disk: Disk, path: str, entropy: Entropy) -> tuple[DirectoryMeta, bool]:
    """The directory's description; written anew when it is missing or beyond repair, which loses only the id."""
    file = f"{path}/directory.meta"
    restored = False
    # Whoever made these names may have died before they were durable.
    disk.sync_directory(path)
    if disk.exists(file):
        slots = SlotFile.open(disk, file)
        slots.close()
        if slots.payload is not None:
            version, identity = _META.unpack(slots.payload)
            if version != FORMAT_VERSION:
                raise DirectoryFormatError(
                    f"{path} has format {version}, this build reads {FORMAT_VERSION}; use the GoQueue that wrote it",
                    path=path,
                    format_version=version,
                )
            return DirectoryMeta(version, identity), slots.damaged
        disk.remove(file)
        restored = True
    restored = restored or disk.exists(f"{path}/logs")
    disk.sync_directory(os.path.dirname(path) or ".")
    disk.make_directory(f"{path}/logs")
    meta = DirectoryMeta(FORMAT_VERSION, entropy.random_bytes(16))
    SlotFile.create(disk, file, _META.pack(meta.format_version, meta.directory_id)).close()
    disk.sync_directory(path)
    return meta, restored
