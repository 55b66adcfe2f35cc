"""The storage engine: logs of records on disk that are fast, recover by themselves and never lie."""

from goqueue.storage.compaction import CompactionPlan, CompactionResult, install_compaction, plan_compaction
from goqueue.storage.config import LogConfig
from goqueue.storage.damage import Damage
from goqueue.storage.directory import DataDirectory, read_directory_id
from goqueue.storage.group_commit import GroupCommit
from goqueue.storage.log import Log, LogStatistics
from goqueue.storage.log_view import LogView, SegmentSpan
from goqueue.storage.recovery import RecoveryReport, TailCut
from goqueue.storage.retention import apply_retention
from goqueue.storage.scrub import Scrubber
from goqueue.storage.segment import FileRange
from goqueue.storage.sync_ticket import SyncTicket
from goqueue.storage.turn_writer import TurnWriter

__all__ = [
    "CompactionPlan",
    "CompactionResult",
    "Damage",
    "DataDirectory",
    "FileRange",
    "GroupCommit",
    "Log",
    "LogConfig",
    "LogStatistics",
    "LogView",
    "RecoveryReport",
    "Scrubber",
    "SegmentSpan",
    "SyncTicket",
    "TailCut",
    "TurnWriter",
    "apply_retention",
    "install_compaction",
    "plan_compaction",
    "read_directory_id",
]
