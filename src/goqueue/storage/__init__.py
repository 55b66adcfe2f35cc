"""The storage engine: logs of records on disk that are fast, recover by themselves and never lie."""

from goqueue.storage.config import LogConfig
from goqueue.storage.damage import Damage
from goqueue.storage.log import Log, LogStatistics, SyncTicket
from goqueue.storage.recovery import RecoveryReport, TailCut
from goqueue.storage.segment import FileRange

__all__ = ["Damage", "FileRange", "Log", "LogConfig", "LogStatistics", "RecoveryReport", "SyncTicket", "TailCut"]
