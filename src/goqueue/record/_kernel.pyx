# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: embedsignature=True
"""The native kernel: the only code that touches single records on the data path.

It knows the byte layout of docs/formats/record.md and of the index entries in docs/formats/log.md, and nothing of files,
topics or time. Every length is checked before it is used in arithmetic or as an address; a malformed buffer gives an
exception and leaves the buffer as it was, because a batch is verified as a whole before the first byte of it is stamped.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from libc.stdint cimport INT64_MAX, SIZE_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from goqueue import errors

cdef extern from "crc32c.h" nogil:
    uint32_t gq_crc(uint32_t crc, const uint8_t *p, size_t length)
    uint32_t gq_crc_record(const uint8_t *record, size_t size)
    int gq_crc_can_restamp
    ctypedef struct gq_crc_shift:
        size_t length
        uint32_t factor
    uint32_t gq_crc_restamp(uint32_t crc, const uint8_t *before, const uint8_t *after, size_t following,
                            gq_crc_shift *shift)
    int gq_crc_setup(int allow_hardware)
    uint16_t gq_load16(const uint8_t *p)
    uint32_t gq_load32(const uint8_t *p)
    uint64_t gq_load64(const uint8_t *p)
    void gq_store16(uint8_t *p, uint16_t v)
    void gq_store32(uint8_t *p, uint32_t v)
    void gq_store64(uint8_t *p, uint64_t v)

cdef enum:
    HEADER = 34
    KEY_MAX = 65535
    HEADERS_MAX = 65535
    VALUE_MAX = 16777216
    PRIORITY_MAX = 4
    ENTRY = 16
    INTERVAL = 4096
    NOGIL_BYTES = 262144  # below this, giving up the interpreter lock costs more than it frees
    COMPRESSED = 0x01
    HAS_HEADERS = 0x02
    TOMBSTONE = 0x04
    CONTROL = 0x08
    COMMIT = 0x10
    DELAYED = 0x20
    TRANSACTIONAL = 0x40
    NULL_KEY = 0x80
    DERIVED = HAS_HEADERS | TOMBSTONE | NULL_KEY

HEADER_BYTES = HEADER
KEY_BYTES_MAX = KEY_MAX
VALUE_BYTES_MAX = VALUE_MAX
HEADERS_BYTES_MAX = HEADERS_MAX
INDEX_ENTRY_BYTES = ENTRY
INDEX_INTERVAL_BYTES = INTERVAL
OFFSET_MAX = INT64_MAX

cdef enum Status:
    OK, TRUNCATED, MAGIC, VERSION, VALUE_SIZE, CHECKSUM, PRIORITY, MALFORMED, TIMESTAMP, FORBIDDEN, GAP

hardware_crc = bool(gq_crc_setup(1))


def use_hardware_crc(bint allow):
    """Choose the CRC form; returns whether the CPU's instruction is in use. For tests and comparison."""
    global hardware_crc
    hardware_crc = bool(gq_crc_setup(allow))
    return hardware_crc


def crc32c(data, uint32_t seed=0):
    """CRC32C of `data`; `seed` is the checksum of what came before."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return <uint32_t>~gq_crc(~seed, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


# -- one record -------------------------------------------------------------------------------------------------

cdef struct Span:
    size_t size
    uint32_t value_bytes
    uint16_t key_bytes
    uint16_t headers_bytes
    uint8_t flags
    uint8_t priority
    int64_t offset
    int64_t timestamp


cdef int _check_headers(const uint8_t *p, size_t size) noexcept nogil:
    """The block holds exactly the header count it announces, and at least one."""
    cdef size_t at = 2
    cdef uint32_t left
    cdef int part
    if size < 2:
        return MALFORMED
    left = gq_load16(p)
    if left == 0:
        return MALFORMED
    while left:
        for part in range(2):
            if size - at < 2:
                return MALFORMED
            at += 2 + gq_load16(p + at)
            if at > size:
                return MALFORMED
        left -= 1
    return OK if at == size else MALFORMED


cdef inline int _check(const uint8_t *p, size_t left, uint32_t value_max, Span *s) noexcept nogil:
    """Everything that makes `p` a valid record; fills `s`. Nothing beyond `left` is read."""
    if left < HEADER:
        return TRUNCATED
    if p[0] != 0x47 or p[1] != 0x51:
        return MAGIC
    if p[2] != 1:
        return VERSION
    s.flags = p[3]
    s.priority = p[24]
    s.offset = <int64_t>gq_load64(p + 8)
    s.timestamp = <int64_t>gq_load64(p + 16)
    s.key_bytes = gq_load16(p + 26)
    s.value_bytes = gq_load32(p + 28)
    s.headers_bytes = gq_load16(p + 32)
    if s.value_bytes > value_max:
        return VALUE_SIZE
    s.size = <size_t>HEADER + s.key_bytes + s.value_bytes + s.headers_bytes
    if s.size > left:
        return TRUNCATED
    if gq_crc_record(p, s.size) != gq_load32(p + 4):
        return CHECKSUM
    if s.priority > PRIORITY_MAX:
        return PRIORITY
    if s.timestamp < 0:
        return TIMESTAMP
    if p[25] != 0 or s.offset < 0 or s.offset == INT64_MAX:  # the offset after any record must be a number too
        return MALFORMED
    if (s.flags & NULL_KEY and s.key_bytes) or (s.flags & TOMBSTONE and s.value_bytes):
        return MALFORMED
    if s.flags & COMMIT and not s.flags & CONTROL:
        return MALFORMED
    if ((s.flags & HAS_HEADERS) != 0) != (s.headers_bytes != 0):
        return MALFORMED
    if s.headers_bytes:
        return _check_headers(p + s.size - s.headers_bytes, s.headers_bytes)
    return OK


cdef object _error(int status, size_t position, Span *s):
    """The exception for a status; `position` is where the record starts in the caller's buffer."""
    if status == TRUNCATED:
        return errors.RecordTruncatedError(f"the buffer ends inside the record at byte {position}", position=position)
    if status == MAGIC:
        return errors.MagicInvalidError(f"no record starts at byte {position}: wrong magic", position=position)
    if status == VERSION:
        return errors.VersionUnsupportedError(f"unsupported record version at byte {position}", position=position)
    if status == VALUE_SIZE:
        return errors.ValueTooLargeError(
            f"the value of the record at byte {position} has {s.value_bytes} bytes, more than allowed here",
            position=position, value_bytes=s.value_bytes)
    if status == CHECKSUM:
        return errors.ChecksumMismatchError(f"checksum mismatch in the record at byte {position}", position=position)
    if status == PRIORITY:
        return errors.PriorityInvalidError(
            f"priority {s.priority} at byte {position}; priorities are 0 to {PRIORITY_MAX}",
            position=position, priority=s.priority)
    if status == TIMESTAMP:
        return errors.TimestampInvalidError(f"negative timestamp in the record at byte {position}", position=position)
    if status == FORBIDDEN:
        return errors.FlagsForbiddenError(
            f"flags 0x{s.flags:02x} of the record at byte {position} may not be set by this writer",
            position=position, flags=s.flags)
    if status == GAP:
        return errors.OffsetGapError(
            f"offset {s.offset} at byte {position} does not continue the log", position=position, offset=s.offset)
    return errors.RecordMalformedError(
        f"the record at byte {position} contradicts itself: flags, lengths, reserved byte or headers block",
        position=position)


# -- index entries and facts ------------------------------------------------------------------------------------

@cython.final
cdef class IndexCursor:
    """Where the next record of a segment goes and when its indexes want another entry."""

    cdef public int64_t segment_base, position, next_index_at, max_timestamp_ns

    def __init__(self, int64_t segment_base, int64_t position=0, int64_t next_index_at=0, int64_t max_timestamp_ns=-1):
        self.segment_base = segment_base
        self.position = position
        self.next_index_at = next_index_at
        self.max_timestamp_ns = max_timestamp_ns

    def copy(self):
        return IndexCursor(self.segment_base, self.position, self.next_index_at, self.max_timestamp_ns)


@cython.final
cdef class BatchFacts:
    """What one walk over a batch found. Counts are records; `priorities` is None when all are the same."""

    cdef readonly int64_t count, byte_count, base_offset, last_offset, min_timestamp_ns, max_timestamp_ns
    cdef readonly int64_t delayed_count, transactional_count, control_count, tombstone_count
    cdef readonly int flags_any
    cdef readonly tuple lane_counts
    cdef readonly bytes priorities, offset_entries, time_entries

    @property
    def next_offset(self):
        return self.last_offset + 1


cdef struct Walk:
    int64_t count, first_offset, last_offset, min_timestamp, max_timestamp
    int64_t delayed, transactional, control, tombstones
    int64_t lanes[5]
    uint8_t flags_any
    size_t position
    # index output: room for entries_max of each kind, or NULL when the caller wants none
    uint8_t *offset_entries
    uint8_t *time_entries
    size_t entries
    int64_t segment_base, segment_position, next_index_at, running_max


cdef inline void _note(Walk *w, Span *s) noexcept nogil:
    if w.count == 0:
        w.first_offset = s.offset
        w.min_timestamp = s.timestamp
        w.max_timestamp = s.timestamp
    elif s.timestamp > w.max_timestamp:
        w.max_timestamp = s.timestamp
    elif s.timestamp < w.min_timestamp:
        w.min_timestamp = s.timestamp
    w.last_offset = s.offset
    w.count += 1
    w.lanes[s.priority] += 1
    w.flags_any |= s.flags
    if s.flags & (DELAYED | TRANSACTIONAL | CONTROL | TOMBSTONE):
        w.delayed += (s.flags & DELAYED) != 0
        w.transactional += (s.flags & TRANSACTIONAL) != 0
        w.control += (s.flags & CONTROL) != 0
        w.tombstones += (s.flags & TOMBSTONE) != 0


cdef inline void _index(Walk *w, Span *s) noexcept nogil:
    """Entries for the first record at or after every 4 KiB step; times carry the running maximum."""
    cdef uint8_t *entry
    cdef int64_t at = w.segment_position + <int64_t>w.position
    if s.timestamp > w.running_max:
        w.running_max = s.timestamp
    if at < w.next_index_at:
        return
    entry = w.offset_entries + w.entries * ENTRY
    gq_store64(entry, <uint64_t>s.offset)
    gq_store32(entry + 8, <uint32_t>at)
    gq_store32(entry + 12, ~gq_crc(0xFFFFFFFFu, entry, 12))
    entry = w.time_entries + w.entries * ENTRY
    gq_store64(entry, <uint64_t>w.running_max)
    gq_store32(entry + 8, <uint32_t>(s.offset - w.segment_base))
    gq_store32(entry + 12, ~gq_crc(0xFFFFFFFFu, entry, 12))
    w.entries += 1
    w.next_index_at = at + INTERVAL


cdef int _walk(const uint8_t *p, size_t size, uint32_t value_max, uint8_t forbidden, int64_t expected,
               bint gaps, Walk *w, Span *s) noexcept nogil:
    """Check records until the end or the first bad one; `w.position` is then where it starts.

    `expected` >= 0 asks that offsets continue from there, without gaps unless `gaps`.
    """
    cdef int status
    value_max = min(value_max, <uint32_t>VALUE_MAX)
    while w.position < size:
        status = _check(p + w.position, size - w.position, value_max, s)
        if status != OK:
            return status
        if s.flags & forbidden:
            return FORBIDDEN
        if expected >= 0:
            if s.offset != expected and (not gaps or s.offset < expected):
                return GAP
            expected = s.offset + 1
        _note(w, s)
        if w.offset_entries != NULL:
            _index(w, s)
        w.position += s.size
    return OK


cdef void _stamp(uint8_t *p, size_t size, int64_t offset, int64_t timestamp, bint force, Walk *w) noexcept nogil:
    """Second pass over a verified batch: offsets, timestamps, checksums, index entries."""
    cdef Span s
    cdef uint8_t *record
    cdef uint8_t before[16]
    cdef gq_crc_shift shift
    shift.length = SIZE_MAX
    w.position = 0
    w.count = 0
    while w.position < size:
        record = p + w.position
        s.size = <size_t>HEADER + gq_load16(record + 26) + gq_load32(record + 28) + gq_load16(record + 32)
        s.offset = offset
        s.timestamp = <int64_t>gq_load64(record + 16)
        memcpy(before, record + 8, 16)
        if force or s.timestamp == 0:
            s.timestamp = timestamp
            gq_store64(record + 16, <uint64_t>timestamp)
        gq_store64(record + 8, <uint64_t>offset)
        if gq_crc_can_restamp:
            gq_store32(record + 4, gq_crc_restamp(gq_load32(record + 4), before, record + 8, s.size - 24, &shift))
        else:
            gq_store32(record + 4, gq_crc_record(record, s.size))
        if w.count == 0:
            w.min_timestamp = s.timestamp
            w.max_timestamp = s.timestamp
        elif s.timestamp > w.max_timestamp:
            w.max_timestamp = s.timestamp
        elif s.timestamp < w.min_timestamp:
            w.min_timestamp = s.timestamp
        w.count += 1
        _index(w, &s)
        w.position += s.size
        offset += 1


cdef BatchFacts _facts(const uint8_t *p, Walk *w, object offset_entries, object time_entries):
    cdef BatchFacts facts = BatchFacts.__new__(BatchFacts)
    cdef int lane, used = 0
    cdef size_t at = 0
    cdef int64_t i
    cdef bytes priorities
    cdef char *out
    facts.count = w.count
    facts.byte_count = w.position
    facts.base_offset = w.first_offset
    facts.last_offset = w.last_offset
    facts.min_timestamp_ns = w.min_timestamp
    facts.max_timestamp_ns = w.max_timestamp
    facts.delayed_count = w.delayed
    facts.transactional_count = w.transactional
    facts.control_count = w.control
    facts.tombstone_count = w.tombstones
    facts.flags_any = w.flags_any
    facts.lane_counts = (w.lanes[0], w.lanes[1], w.lanes[2], w.lanes[3], w.lanes[4])
    facts.offset_entries = b"" if offset_entries is None else offset_entries
    facts.time_entries = b"" if time_entries is None else time_entries
    for lane in range(5):
        used += w.lanes[lane] != 0
    if used > 1:
        priorities = PyBytes_FromStringAndSize(NULL, w.count)
        out = PyBytes_AS_STRING(priorities)
        for i in range(w.count):
            out[i] = p[at + 24]
            at += <size_t>HEADER + gq_load16(p + at + 26) + gq_load32(p + at + 28) + gq_load16(p + at + 32)
        facts.priorities = priorities
    return facts


cdef void _begin_index(Walk *w, IndexCursor cursor, bytes offset_entries, bytes time_entries):
    w.offset_entries = <uint8_t *>PyBytes_AS_STRING(offset_entries)
    w.time_entries = <uint8_t *>PyBytes_AS_STRING(time_entries)
    w.segment_base = cursor.segment_base
    w.segment_position = cursor.position
    w.next_index_at = cursor.next_index_at
    w.running_max = cursor.max_timestamp_ns


cdef void _end_index(Walk *w, IndexCursor cursor):
    cursor.position += <int64_t>w.position
    cursor.next_index_at = w.next_index_at
    cursor.max_timestamp_ns = w.running_max


def verify(batch, uint32_t value_bytes_max=VALUE_MAX, uint8_t forbidden_flags=0):
    """Check every record of `batch`; raises the error of the first bad one."""
    cdef Py_buffer view
    cdef Walk w
    cdef Span s
    cdef int status
    memset(&w, 0, sizeof(w))
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if view.len == 0:
            raise errors.BatchEmptyError("the batch holds no record")
        if view.len >= NOGIL_BYTES:
            with nogil:
                status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, forbidden_flags, -1, 0, &w, &s)
        else:
            status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, forbidden_flags, -1, 0, &w, &s)
        if status != OK:
            raise _error(status, w.position, &s)
        return _facts(<const uint8_t *>view.buf, &w, None, None)
    finally:
        PyBuffer_Release(&view)


def stamp(batch, int64_t base_offset, int64_t timestamp_ns, IndexCursor cursor not None,
          uint32_t value_bytes_max=VALUE_MAX, uint8_t forbidden_flags=0, bint force_timestamp=False):
    """Verify `batch`, then give its records consecutive offsets, timestamps (where 0, or all with `force_timestamp`)
    and new checksums in place. Returns the facts with the index entries due and moves `cursor` behind the batch.
    On an error neither the buffer nor the cursor has changed."""
    cdef Py_buffer view
    cdef Walk w
    cdef Span s
    cdef int status
    cdef bytes offset_entries, time_entries
    cdef Py_ssize_t room
    if base_offset < 0:
        raise errors.OffsetGapError("a log has no negative offsets", offset=base_offset)
    if timestamp_ns < 0:
        raise errors.TimestampInvalidError("a timestamp must not be negative", timestamp_ns=timestamp_ns)
    memset(&w, 0, sizeof(w))
    PyObject_GetBuffer(batch, &view, PyBUF_WRITABLE)
    try:
        if view.len == 0:
            raise errors.BatchEmptyError("the batch holds no record")
        room = (view.len // INTERVAL + 2) * ENTRY
        offset_entries = PyBytes_FromStringAndSize(NULL, room)
        time_entries = PyBytes_FromStringAndSize(NULL, room)
        if view.len >= NOGIL_BYTES:
            with nogil:
                status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, forbidden_flags, -1, 0, &w, &s)
        else:
            status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, forbidden_flags, -1, 0, &w, &s)
        if status != OK:
            raise _error(status, w.position, &s)
        if w.count > INT64_MAX - base_offset:
            raise errors.OffsetGapError("the log has no offsets left", offset=base_offset)
        _begin_index(&w, cursor, offset_entries, time_entries)
        if view.len >= NOGIL_BYTES:
            with nogil:
                _stamp(<uint8_t *>view.buf, view.len, base_offset, timestamp_ns, force_timestamp, &w)
        else:
            _stamp(<uint8_t *>view.buf, view.len, base_offset, timestamp_ns, force_timestamp, &w)
        w.first_offset = base_offset
        w.last_offset = base_offset + w.count - 1
        _end_index(&w, cursor)
        return _facts(<const uint8_t *>view.buf, &w, offset_entries[:w.entries * ENTRY], time_entries[:w.entries * ENTRY])
    finally:
        PyBuffer_Release(&view)


def scan(batch, int64_t expected_offset, IndexCursor cursor not None, bint allow_gaps=False,
         uint32_t value_bytes_max=VALUE_MAX):
    """Walk stored records from `expected_offset` on. Returns (facts of the valid prefix, error or None): a torn or
    damaged tail is the caller's to judge. Moves `cursor` behind the valid prefix."""
    cdef Py_buffer view
    cdef Walk w
    cdef Span s
    cdef int status
    cdef bytes offset_entries, time_entries
    cdef Py_ssize_t room
    if expected_offset < 0:
        raise errors.OffsetGapError("a log has no negative offsets", offset=expected_offset)
    memset(&w, 0, sizeof(w))
    w.first_offset = expected_offset
    w.last_offset = expected_offset - 1
    w.min_timestamp = w.max_timestamp = -1
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        room = (view.len // INTERVAL + 2) * ENTRY
        offset_entries = PyBytes_FromStringAndSize(NULL, room)
        time_entries = PyBytes_FromStringAndSize(NULL, room)
        _begin_index(&w, cursor, offset_entries, time_entries)
        if view.len >= NOGIL_BYTES:
            with nogil:
                status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, 0, expected_offset, allow_gaps, &w, &s)
        else:
            status = _walk(<const uint8_t *>view.buf, view.len, value_bytes_max, 0, expected_offset, allow_gaps, &w, &s)
        _end_index(&w, cursor)
        facts = _facts(<const uint8_t *>view.buf, &w, offset_entries[:w.entries * ENTRY], time_entries[:w.entries * ENTRY])
        return facts, (None if status == OK else _error(status, w.position, &s))
    finally:
        PyBuffer_Release(&view)


def resync(data, Py_ssize_t position):
    """The first byte at or after `position` where a whole valid record starts, or -1."""
    cdef Py_buffer view
    cdef Span s
    cdef const uint8_t *p
    cdef const uint8_t *hit
    cdef Py_ssize_t at = position
    cdef Py_ssize_t found = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        if at < 0:
            at = 0
        with nogil:
            while view.len - at >= HEADER:
                hit = <const uint8_t *>memchr(p + at, 0x47, view.len - at)
                if hit == NULL:
                    break
                at = hit - p
                if _check(hit, view.len - at, VALUE_MAX, &s) == OK:
                    found = at
                    break
                at += 1
        return found
    finally:
        PyBuffer_Release(&view)


# -- searching --------------------------------------------------------------------------------------------------

def find_offset(data, int64_t offset):
    """Position of the first record with that offset or a higher one; (position, offset), or (length, -1)."""
    return _find(data, offset, 0, False)


def find_timestamp(data, int64_t timestamp_ns, int64_t min_offset):
    """The first record at or above `min_offset` with at least that timestamp; (position, offset), or (length, -1)."""
    return _find(data, min_offset, timestamp_ns, True)


cdef object _find(object data, int64_t offset, int64_t timestamp, bint by_time):
    cdef Py_buffer view
    cdef Span s
    cdef const uint8_t *p
    cdef size_t at = 0
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while at < <size_t>view.len:
            status = _check(p + at, view.len - at, VALUE_MAX, &s)
            if status != OK:
                raise _error(status, at, &s)
            if s.offset >= offset and (not by_time or s.timestamp >= timestamp):
                return at, s.offset
            at += s.size
        return at, -1
    finally:
        PyBuffer_Release(&view)


def whole_records(data, int64_t bytes_max):
    """How many bytes of `data` to take so that it ends on a record: at most `bytes_max`, but at least one record
    where `data` holds one. Only lengths are looked at; whoever decodes the bytes verifies them."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef size_t at = 0, size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while view.len - at >= HEADER:
            size = (<size_t>HEADER + gq_load16(p + at + 26) + gq_load32(p + at + 28) + gq_load16(p + at + 32))
            if size > view.len - at or (at and <int64_t>(at + size) > bytes_max):
                break
            at += size
        return at
    finally:
        PyBuffer_Release(&view)


cdef inline bint _entry_ok(const uint8_t *entry) noexcept nogil:
    return <uint32_t>~gq_crc(0xFFFFFFFFu, entry, 12) == gq_load32(entry + 12)


def index_floor(entries, int64_t key, bint by_position=False):
    """The last index entry whose key (or position) is at most `key`: its number, -1 when there is none,
    -2 when an entry on the way is damaged."""
    cdef Py_buffer view
    cdef const uint8_t *entry
    cdef Py_ssize_t low = 0, high, middle
    cdef int64_t found
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        high = view.len // ENTRY
        while low < high:
            middle = (low + high) >> 1
            entry = <const uint8_t *>view.buf + middle * ENTRY
            if not _entry_ok(entry):
                return -2
            found = gq_load32(entry + 8) if by_position else <int64_t>gq_load64(entry)
            if found <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1
    finally:
        PyBuffer_Release(&view)


def index_entry(entries, Py_ssize_t number):
    """(key, position) of one index entry, or None when it is out of range or damaged."""
    cdef Py_buffer view
    cdef const uint8_t *entry
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        if number < 0 or number >= view.len // ENTRY:
            return None
        entry = <const uint8_t *>view.buf + number * ENTRY
        if not _entry_ok(entry):
            return None
        return <int64_t>gq_load64(entry), gq_load32(entry + 8)
    finally:
        PyBuffer_Release(&view)


include "_encode.pxi"
include "_decode.pxi"
