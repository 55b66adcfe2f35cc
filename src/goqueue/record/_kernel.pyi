from collections.abc import Iterable
from typing import Final

from goqueue.errors import RecordError
from goqueue.host import Buffer

HEADER_BYTES: Final[int]
KEY_BYTES_MAX: Final[int]
VALUE_BYTES_MAX: Final[int]
HEADERS_BYTES_MAX: Final[int]
INDEX_ENTRY_BYTES: Final[int]
INDEX_INTERVAL_BYTES: Final[int]
OFFSET_MAX: Final[int]
hardware_crc: bool

Text = str | bytes

def use_hardware_crc(allow: bool) -> bool: ...
def crc32c(data: Buffer, seed: int = 0) -> int: ...

class IndexCursor:
    segment_base: int
    position: int
    next_index_at: int
    max_timestamp_ns: int
    def __init__(
        self, segment_base: int, position: int = 0, next_index_at: int = 0, max_timestamp_ns: int = -1
    ) -> None: ...
    def copy(self) -> IndexCursor: ...

class BatchFacts:
    @property
    def count(self) -> int: ...
    @property
    def byte_count(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def min_timestamp_ns(self) -> int: ...
    @property
    def max_timestamp_ns(self) -> int: ...
    @property
    def delayed_count(self) -> int: ...
    @property
    def transactional_count(self) -> int: ...
    @property
    def control_count(self) -> int: ...
    @property
    def tombstone_count(self) -> int: ...
    @property
    def flags_any(self) -> int: ...
    @property
    def lane_counts(self) -> tuple[int, int, int, int, int]: ...
    @property
    def priorities(self) -> bytes | None: ...
    @property
    def offset_entries(self) -> bytes: ...
    @property
    def time_entries(self) -> bytes: ...

def verify(batch: Buffer, value_bytes_max: int = ..., forbidden_flags: int = 0) -> BatchFacts: ...
def stamp(
    batch: bytearray | memoryview,
    base_offset: int,
    timestamp_ns: int,
    cursor: IndexCursor,
    value_bytes_max: int = ...,
    forbidden_flags: int = 0,
    force_timestamp: bool = False,
) -> BatchFacts: ...
def scan(
    batch: Buffer,
    expected_offset: int,
    cursor: IndexCursor,
    allow_gaps: bool = False,
    value_bytes_max: int = ...,
) -> tuple[BatchFacts, RecordError | None]: ...
def resync(data: Buffer, position: int) -> int: ...
def find_offset(data: Buffer, offset: int) -> tuple[int, int]: ...
def find_timestamp(data: Buffer, timestamp_ns: int, min_offset: int) -> tuple[int, int]: ...
def whole_records(data: Buffer, bytes_max: int) -> int: ...
def index_floor(entries: Buffer, key: int, by_position: bool = False) -> int: ...
def index_entry(entries: Buffer, number: int) -> tuple[int, int] | None: ...

class BatchBuilder:
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def value_bytes_max(self) -> int: ...
    def __init__(self, value_bytes_max: int = ...) -> None: ...
    def add(
        self,
        value: Buffer | None,
        key: Buffer | None = None,
        headers: Iterable[tuple[Text, Text]] | None = None,
        priority: int = 2,
        timestamp_ns: int = 0,
        flags: int = 0,
        offset: int = 0,
    ) -> int: ...
    def extend(self, values: Iterable[Buffer]) -> int: ...
    def take(self) -> bytearray: ...

class Record:
    @property
    def topic(self) -> str | None: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ns(self) -> int: ...
    @property
    def priority(self) -> int: ...
    @property
    def flags(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[Text, bytes], ...]: ...
    def raw(self) -> bytes: ...

def decode(
    batch: Buffer,
    skip_flags: int = 0,
    min_offset: int = 0,
    max_offset: int = ...,
    limit: int = -1,
    allow_partial: bool = False,
    topic: str | None = None,
    partition: int = -1,
) -> list[Record]: ...
def last_offset(data: Buffer) -> int: ...

class Columns:
    count: int
    key_nulls: int
    value_nulls: int
    header_count: int
    consumed: int
    next_offset: int
    offset: bytes
    timestamp: bytes
    priority: bytes
    flags: bytes
    key_validity: bytes | None
    key_offsets: bytes
    key_data: bytes
    value_validity: bytes | None
    value_offsets: bytes
    value_data: bytes
    header_list_offsets: bytes | None
    header_name_offsets: bytes | None
    header_name_data: bytes | None
    header_value_offsets: bytes | None
    header_value_data: bytes | None

def decode_columns(
    batch: Buffer,
    skip_flags: int = 0,
    min_offset: int = 0,
    max_offset: int = ...,
    timestamp_unit_ns: int = 1,
    allow_partial: bool = False,
) -> Columns: ...
def collect_delayed(data: Buffer, due_name: bytes, min_offset: int = 0) -> tuple[bytes, list[Record]]: ...
def collect_keys(data: Buffer, latest: dict[bytes, int]) -> int: ...
def retain_latest(data: Buffer, latest: dict[bytes, int], tombstones_before_ns: int) -> bytearray: ...
