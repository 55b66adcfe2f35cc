# Records to Python objects and to Arrow buffers; what compaction asks of single records.

cdef uint8_t _NO_RECORD[HEADER]  # what `Record.__new__(Record)` shows: zeros instead of a null pointer


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Record:
    """A view of one stored record. It keeps the buffer it was read from alive; fields are decoded when asked for.

    `topic` and `partition` say where it was read, if the reader told `decode`."""

    cdef bytes _base
    cdef const uint8_t *_p
    cdef readonly str topic
    cdef readonly int partition

    def __cinit__(self):
        self._p = _NO_RECORD

    def __init__(self):
        raise TypeError("records come from decode()")

    @property
    def offset(self):
        return <int64_t>gq_load64(self._p + 8)

    @property
    def timestamp_ns(self):
        return <int64_t>gq_load64(self._p + 16)

    @property
    def priority(self):
        return self._p[24]

    @property
    def flags(self):
        return self._p[3]

    @property
    def size_bytes(self):
        return HEADER + gq_load16(self._p + 26) + gq_load32(self._p + 28) + gq_load16(self._p + 32)

    @property
    def key(self):
        """None for no key, which is not the empty key."""
        if self._p[3] & NULL_KEY:
            return None
        return PyBytes_FromStringAndSize(<const char *>self._p + HEADER, gq_load16(self._p + 26))

    @property
    def value(self):
        """None for a tombstone, which is not the empty value."""
        if self._p[3] & TOMBSTONE:
            return None
        return PyBytes_FromStringAndSize(
            <const char *>self._p + HEADER + gq_load16(self._p + 26), gq_load32(self._p + 28))

    @property
    def headers(self):
        """(name, value) pairs in their order; names are text where they are UTF-8 and bytes where not."""
        cdef const uint8_t *p
        cdef int left
        cdef list pairs = []
        if not self._p[3] & HAS_HEADERS:
            return ()
        p = self._p + HEADER + gq_load16(self._p + 26) + gq_load32(self._p + 28)
        left = gq_load16(p)
        p += 2
        while left:
            name = PyBytes_FromStringAndSize(<const char *>p + 2, gq_load16(p))
            p += 2 + gq_load16(p)
            value = PyBytes_FromStringAndSize(<const char *>p + 2, gq_load16(p))
            p += 2 + gq_load16(p)
            try:
                pairs.append((name.decode(), value))
            except UnicodeDecodeError:
                pairs.append((name, value))
            left -= 1
        return tuple(pairs)

    def raw(self):
        """The record's bytes as stored."""
        return PyBytes_FromStringAndSize(<const char *>self._p, self.size_bytes)

    def __repr__(self):
        return f"Record(offset={self.offset}, key={self.key!r}, value={self.value!r}, flags=0x{self.flags:02x})"


def decode(batch, uint8_t skip_flags=0, int64_t min_offset=0, int64_t max_offset=INT64_MAX, Py_ssize_t limit=-1,
           bint allow_partial=False, str topic=None, int partition=-1):
    """The batch's records with min_offset <= offset < max_offset and none of `skip_flags`, at most `limit`.

    `allow_partial` ends quietly at a record that the buffer cuts off."""
    cdef bytes base = batch if type(batch) is bytes else bytes(memoryview(batch))
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(base)
    cdef size_t size = PyBytes_GET_SIZE(base)
    cdef size_t at = 0
    cdef Span s
    cdef int status
    cdef Record record
    cdef list found = []
    while at < size and limit != 0:
        status = _check(p + at, size - at, VALUE_MAX, &s)
        if status == TRUNCATED and allow_partial:
            break
        if status != OK:
            raise _error(status, at, &s)
        if s.offset >= max_offset:
            break
        if s.offset >= min_offset and not s.flags & skip_flags:
            record = Record.__new__(Record)
            record._base = base
            record._p = p + at
            record.topic = topic
            record.partition = partition
            found.append(record)
            limit -= 1
        at += s.size
    return found


def last_offset(data):
    """Offset of the last whole record, -1 when there is none. Only lengths are looked at."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef size_t at = 0, size
    cdef int64_t offset = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while view.len - at >= HEADER:
            size = (<size_t>HEADER + gq_load16(p + at + 26) + gq_load32(p + at + 28) + gq_load16(p + at + 32))
            if size > view.len - at:
                break
            offset = <int64_t>gq_load64(p + at + 8)
            at += size
        return offset
    finally:
        PyBuffer_Release(&view)


# -- Arrow ------------------------------------------------------------------------------------------------------

@cython.final
cdef class Columns:
    """Raw Arrow buffers of a batch; `goqueue.record.arrow` gives them their types. Validity bitmaps are None where
    nothing is null, header buffers are None where no record has headers."""

    cdef readonly Py_ssize_t count, key_nulls, value_nulls, header_count, consumed
    cdef readonly int64_t next_offset
    cdef readonly bytes offset, timestamp, priority, flags
    cdef readonly bytes key_validity, key_offsets, key_data, value_validity, value_offsets, value_data
    cdef readonly bytes header_list_offsets, header_name_offsets, header_name_data
    cdef readonly bytes header_value_offsets, header_value_data


cdef struct Fill:
    int64_t *offset
    int64_t *timestamp
    uint8_t *priority
    uint8_t *flags
    uint8_t *key_validity
    int32_t *key_offsets
    uint8_t *key_data
    uint8_t *value_validity
    int32_t *value_offsets
    uint8_t *value_data
    int32_t *lists
    int32_t *name_offsets
    uint8_t *name_data
    int32_t *text_offsets
    uint8_t *text_data
    size_t headers


cdef struct Totals:
    size_t count, key_bytes, value_bytes, header_bytes, headers, key_nulls, value_nulls, end
    int64_t next_offset


cdef inline void _copy(uint8_t *out, const uint8_t *p, size_t size) noexcept nogil:
    if size:
        memcpy(out, p, size)


cdef int _measure(const uint8_t *p, size_t size, uint8_t skip, int64_t low, int64_t high, bint partial,
                  Totals *t, Span *s) noexcept nogil:
    """First pass: verify everything and add up what the columns need."""
    cdef int status
    while t.end < size:
        status = _check(p + t.end, size - t.end, VALUE_MAX, s)
        if status == TRUNCATED and partial:
            return OK
        if status != OK:
            return status
        if s.offset >= high:
            return OK
        t.next_offset = s.offset + 1
        if s.offset >= low and not s.flags & skip:
            t.count += 1
            t.key_bytes += s.key_bytes
            t.value_bytes += s.value_bytes
            t.key_nulls += (s.flags & NULL_KEY) != 0
            t.value_nulls += (s.flags & TOMBSTONE) != 0
            if s.headers_bytes:
                t.header_bytes += s.headers_bytes
                t.headers += gq_load16(p + t.end + s.size - s.headers_bytes)
        t.end += s.size
    return OK


cdef inline void _fill_headers(Fill *f, const uint8_t *p) noexcept nogil:
    cdef uint32_t left = gq_load16(p)
    cdef uint16_t length
    p += 2
    while left:
        length = gq_load16(p)
        _copy(f.name_data + f.name_offsets[f.headers], p + 2, length)
        f.name_offsets[f.headers + 1] = f.name_offsets[f.headers] + length
        p += 2 + length
        length = gq_load16(p)
        _copy(f.text_data + f.text_offsets[f.headers], p + 2, length)
        f.text_offsets[f.headers + 1] = f.text_offsets[f.headers] + length
        p += 2 + length
        f.headers += 1
        left -= 1


cdef void _fill(const uint8_t *p, size_t end, uint8_t skip, int64_t low, int64_t unit, Fill *f) noexcept nogil:
    """Second pass over what `_measure` has verified."""
    cdef size_t at = 0, n = 0, key_bytes, value_bytes, headers_bytes
    cdef uint8_t flags
    cdef int64_t offset
    cdef int64_t timestamp
    cdef int32_t key_end = 0, value_end = 0
    f.key_offsets[0] = 0
    f.value_offsets[0] = 0
    while at < end:
        flags = p[at + 3]
        offset = <int64_t>gq_load64(p + at + 8)
        key_bytes = gq_load16(p + at + 26)
        value_bytes = gq_load32(p + at + 28)
        headers_bytes = gq_load16(p + at + 32)
        if offset >= low and not flags & skip:
            f.offset[n] = offset
            timestamp = <int64_t>gq_load64(p + at + 16)
            f.timestamp[n] = timestamp if unit == 1 else timestamp // unit
            f.priority[n] = p[at + 24]
            f.flags[n] = flags
            if f.key_validity != NULL and not flags & NULL_KEY:
                f.key_validity[n >> 3] |= 1 << (n & 7)
            if f.value_validity != NULL and not flags & TOMBSTONE:
                f.value_validity[n >> 3] |= 1 << (n & 7)
            _copy(f.key_data + key_end, p + at + HEADER, key_bytes)
            key_end += <int32_t>key_bytes
            f.key_offsets[n + 1] = key_end
            _copy(f.value_data + value_end, p + at + HEADER + key_bytes, value_bytes)
            value_end += <int32_t>value_bytes
            f.value_offsets[n + 1] = value_end
            if f.lists != NULL:
                f.lists[n] = <int32_t>f.headers
                if headers_bytes:
                    _fill_headers(f, p + at + HEADER + key_bytes + value_bytes)
                f.lists[n + 1] = <int32_t>f.headers
            n += 1
        at += HEADER + key_bytes + value_bytes + headers_bytes


cdef inline bytes _room(size_t size):
    return PyBytes_FromStringAndSize(NULL, size)


cdef inline bytes _zeros(size_t size):
    cdef bytes room = PyBytes_FromStringAndSize(NULL, size)
    memset(PyBytes_AS_STRING(room), 0, size)
    return room


cdef void _allocate(Columns c, Totals *t, Fill *f):
    cdef size_t n = t.count
    memset(f, 0, sizeof(Fill))
    c.offset = _room(n * 8)
    c.timestamp = _room(n * 8)
    c.priority = _room(n)
    c.flags = _room(n)
    c.key_offsets = _room((n + 1) * 4)
    c.key_data = _room(t.key_bytes)
    c.value_offsets = _room((n + 1) * 4)
    c.value_data = _room(t.value_bytes)
    f.offset = <int64_t *>PyBytes_AS_STRING(c.offset)
    f.timestamp = <int64_t *>PyBytes_AS_STRING(c.timestamp)
    f.priority = <uint8_t *>PyBytes_AS_STRING(c.priority)
    f.flags = <uint8_t *>PyBytes_AS_STRING(c.flags)
    f.key_offsets = <int32_t *>PyBytes_AS_STRING(c.key_offsets)
    f.key_data = <uint8_t *>PyBytes_AS_STRING(c.key_data)
    f.value_offsets = <int32_t *>PyBytes_AS_STRING(c.value_offsets)
    f.value_data = <uint8_t *>PyBytes_AS_STRING(c.value_data)
    if t.key_nulls:
        c.key_validity = _zeros((n + 7) // 8)
        f.key_validity = <uint8_t *>PyBytes_AS_STRING(c.key_validity)
    if t.value_nulls:
        c.value_validity = _zeros((n + 7) // 8)
        f.value_validity = <uint8_t *>PyBytes_AS_STRING(c.value_validity)
    if t.headers:
        c.header_list_offsets = _zeros((n + 1) * 4)
        c.header_name_offsets = _zeros((t.headers + 1) * 4)
        c.header_value_offsets = _zeros((t.headers + 1) * 4)
        c.header_name_data = _room(t.header_bytes)
        c.header_value_data = _room(t.header_bytes)
        f.lists = <int32_t *>PyBytes_AS_STRING(c.header_list_offsets)
        f.name_offsets = <int32_t *>PyBytes_AS_STRING(c.header_name_offsets)
        f.text_offsets = <int32_t *>PyBytes_AS_STRING(c.header_value_offsets)
        f.name_data = <uint8_t *>PyBytes_AS_STRING(c.header_name_data)
        f.text_data = <uint8_t *>PyBytes_AS_STRING(c.header_value_data)


def decode_columns(batch, uint8_t skip_flags=0, int64_t min_offset=0, int64_t max_offset=INT64_MAX,
                   int64_t timestamp_unit_ns=1, bint allow_partial=False):
    """The same choice of records as `decode`, as Arrow buffers; at most 2 GiB of values."""
    cdef Py_buffer view
    cdef Totals t
    cdef Fill f
    cdef Span s
    cdef int status
    cdef Columns c = Columns.__new__(Columns)
    memset(&t, 0, sizeof(t))
    if timestamp_unit_ns < 1:
        raise errors.InvalidRequestError("timestamp_unit_ns must be at least 1")
    t.next_offset = min_offset
    PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
    try:
        if view.len >= 0x7FFFFFFF:
            raise errors.BatchTooLargeError("Arrow columns take at most 2 GiB at a time", byte_count=view.len)
        if view.len >= NOGIL_BYTES:
            with nogil:
                status = _measure(<const uint8_t *>view.buf, view.len, skip_flags, min_offset, max_offset,
                                  allow_partial, &t, &s)
        else:
            status = _measure(<const uint8_t *>view.buf, view.len, skip_flags, min_offset, max_offset,
                              allow_partial, &t, &s)
        if status != OK:
            raise _error(status, t.end, &s)
        _allocate(c, &t, &f)
        if view.len >= NOGIL_BYTES:
            with nogil:
                _fill(<const uint8_t *>view.buf, t.end, skip_flags, min_offset, timestamp_unit_ns, &f)
        else:
            _fill(<const uint8_t *>view.buf, t.end, skip_flags, min_offset, timestamp_unit_ns, &f)
        c.count = t.count
        c.key_nulls = t.key_nulls
        c.value_nulls = t.value_nulls
        c.header_count = t.headers
        c.consumed = t.end
        c.next_offset = t.next_offset
        return c
    finally:
        PyBuffer_Release(&view)


# -- delays -----------------------------------------------------------------------------------------------------

cdef int64_t _due_in(const uint8_t *block, size_t size, const uint8_t *name, size_t name_bytes) noexcept nogil:
    """The number in the first header when it has this name, else 0. The block has been checked."""
    cdef const uint8_t *p = block + 2
    cdef size_t length, i
    cdef int64_t due = 0
    if size < 4 + name_bytes or gq_load16(p) != name_bytes or memcmp(p + 2, name, name_bytes) != 0:
        return 0
    p += 2 + name_bytes
    length = gq_load16(p)
    if length < 1 or length > 20:
        return 0
    for i in range(length):
        if p[2 + i] < 0x30 or p[2 + i] > 0x39 or due > (INT64_MAX - 9) // 10:
            return 0
        due = due * 10 + (p[2 + i] - 0x30)
    return due


def collect_delayed(data, bytes due_name not None, int64_t min_offset=0):
    """What a reader of delays needs of a batch, from `min_offset` on: (offset, due time) of its delayed records as
    native 64-bit pairs, and its control records. The due time is the decimal text of the first header, if that has
    the name `due_name`; 0 where there is none."""
    cdef bytes base = data if type(data) is bytes else bytes(memoryview(data))
    cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(base)
    cdef const uint8_t *name = <const uint8_t *>PyBytes_AS_STRING(due_name)
    cdef size_t name_bytes = PyBytes_GET_SIZE(due_name)
    cdef size_t size = PyBytes_GET_SIZE(base)
    cdef size_t at = 0
    cdef Py_ssize_t used = 0, room = 0
    cdef int64_t *out
    cdef Span s
    cdef int status
    cdef Record record
    cdef bytearray pairs = bytearray()
    cdef list controls = []
    while at < size:
        status = _check(p + at, size - at, VALUE_MAX, &s)
        if status != OK:
            raise _error(status, at, &s)
        if s.offset >= min_offset:
            if s.flags & CONTROL:
                record = Record.__new__(Record)
                record._base = base
                record._p = p + at
                record.partition = -1
                controls.append(record)
            elif s.flags & DELAYED:
                if used == room:
                    room = max(64, room * 2)
                    PyByteArray_Resize(pairs, room * 16)
                out = <int64_t *>PyByteArray_AS_STRING(pairs)
                out[2 * used] = s.offset
                out[2 * used + 1] = _due_in(p + at + s.size - s.headers_bytes, s.headers_bytes, name, name_bytes)
                used += 1
        at += s.size
    PyByteArray_Resize(pairs, used * 16)
    return bytes(pairs), controls


# -- compaction -------------------------------------------------------------------------------------------------

cdef inline bint _compactable(Span *s) noexcept nogil:
    """Keyed user records only: markers and unreleased delayed records carry meaning beyond their key."""
    return not s.flags & (NULL_KEY | CONTROL | DELAYED)


def collect_keys(data, dict latest):
    """Note the offset of the last record of every key in `latest`; returns the records seen."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef size_t at = 0
    cdef Py_ssize_t count = 0
    cdef Span s
    cdef int status
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        while at < <size_t>view.len:
            status = _check(p + at, view.len - at, VALUE_MAX, &s)
            if status != OK:
                raise _error(status, at, &s)
            if _compactable(&s):
                latest[PyBytes_FromStringAndSize(<const char *>p + at + HEADER, s.key_bytes)] = s.offset
            count += 1
            at += s.size
        return count
    finally:
        PyBuffer_Release(&view)


def retain_latest(data, dict latest, int64_t tombstones_before_ns):
    """The records that survive compaction, as one buffer, byte for byte: those that `latest` does not show to be
    superseded, less tombstones older than `tombstones_before_ns`."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef uint8_t *out
    cdef size_t at = 0, kept = 0
    cdef Span s
    cdef int status
    cdef bytearray result
    cdef bint keep
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        result = PyByteArray_FromStringAndSize(NULL, view.len)
        out = <uint8_t *>PyByteArray_AS_STRING(result)
        while at < <size_t>view.len:
            status = _check(p + at, view.len - at, VALUE_MAX, &s)
            if status != OK:
                raise _error(status, at, &s)
            keep = True
            if _compactable(&s):
                newest = latest.get(PyBytes_FromStringAndSize(<const char *>p + at + HEADER, s.key_bytes))
                keep = newest is None or s.offset >= <int64_t>newest
                if s.flags & TOMBSTONE and s.timestamp < tombstones_before_ns:
                    keep = False
            if keep:
                memcpy(out + kept, p + at, s.size)
                kept += s.size
            at += s.size
        PyByteArray_Resize(result, kept)
        return result
    finally:
        PyBuffer_Release(&view)
