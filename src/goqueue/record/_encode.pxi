# Records from Python objects.

cdef inline Py_ssize_t _headers_size(object pairs) except -1:
    cdef Py_ssize_t size = 2
    for name, value in pairs:
        if len(name) > 65535 or len(value) > 65535:
            raise errors.HeadersTooLargeError("a header's name or value has more than 65535 bytes")
        size += 4 + len(name) + len(value)
    if len(pairs) > 65535 or size > HEADERS_MAX:
        raise errors.HeadersTooLargeError(
            f"the headers take {size} bytes; the limit is {HEADERS_MAX}", headers_bytes=size)
    return size


cdef inline uint8_t *_put_short(uint8_t *p, bytes text):
    cdef Py_ssize_t size = PyBytes_GET_SIZE(text)
    gq_store16(p, <uint16_t>size)
    memcpy(p + 2, PyBytes_AS_STRING(text), size)
    return p + 2 + size


cdef inline bytes _as_bytes(object text):
    # Through memoryview, because bytes(3) would be three zero bytes instead of an error.
    return (<str>text).encode() if isinstance(text, str) else bytes(memoryview(text))


@cython.final
cdef class BatchBuilder:
    """Encodes records one after another into one growing buffer; `take` hands it over without a copy.

    Offsets and timestamps left at 0 are the broker's to assign. A refused record leaves the batch as it was.
    """

    cdef object _buffer
    cdef Py_ssize_t _used, _room
    cdef readonly Py_ssize_t count
    cdef readonly uint32_t value_bytes_max

    def __init__(self, uint32_t value_bytes_max=VALUE_MAX):
        self.value_bytes_max = min(value_bytes_max, <uint32_t>VALUE_MAX)
        self._reset()

    cdef void _reset(self):
        self._buffer = None
        self._used = self._room = self.count = 0

    @property
    def size_bytes(self):
        return self._used

    cdef uint8_t *_grow(self, Py_ssize_t size) except NULL:
        """Room for `size` more bytes; returns where they go."""
        cdef Py_ssize_t room
        if self._used + size > self._room:
            room = max(4096, self._room + self._room // 2, self._used + size)
            if self._buffer is None:
                self._buffer = PyByteArray_FromStringAndSize(NULL, room)
            else:
                PyByteArray_Resize(self._buffer, room)
            self._room = room  # only now: an allocation that failed must not leave room that is not there
        return <uint8_t *>PyByteArray_AS_STRING(self._buffer) + self._used

    cdef Py_ssize_t _put(self, const uint8_t *key, Py_ssize_t key_bytes, const uint8_t *value, Py_ssize_t value_bytes,
                         list headers, uint8_t priority, int64_t timestamp, int64_t offset, uint8_t flags) except -1:
        cdef Py_ssize_t headers_bytes = 0
        cdef Py_ssize_t size
        cdef uint8_t *p
        cdef uint8_t *at
        if key_bytes > KEY_MAX:
            raise errors.KeyTooLargeError(
                f"the key has {key_bytes} bytes; the limit is {KEY_MAX}", key_bytes=key_bytes)
        if value_bytes > <Py_ssize_t>self.value_bytes_max:
            raise errors.ValueTooLargeError(
                f"the value has {value_bytes} bytes; the limit is {self.value_bytes_max}", value_bytes=value_bytes)
        if headers:
            headers_bytes = _headers_size(headers)
            flags |= HAS_HEADERS
        size = HEADER + key_bytes + value_bytes + headers_bytes
        p = self._grow(size)
        p[0] = 0x47
        p[1] = 0x51
        p[2] = 1
        p[3] = flags
        gq_store64(p + 8, <uint64_t>offset)
        gq_store64(p + 16, <uint64_t>timestamp)
        p[24] = priority
        p[25] = 0
        gq_store16(p + 26, <uint16_t>key_bytes)
        gq_store32(p + 28, <uint32_t>value_bytes)
        gq_store16(p + 32, <uint16_t>headers_bytes)
        at = p + HEADER
        if key_bytes:
            memcpy(at, key, key_bytes)
        if value_bytes:
            memcpy(at + key_bytes, value, value_bytes)
        if headers_bytes:
            at += key_bytes + value_bytes
            gq_store16(at, <uint16_t>len(headers))
            at += 2
            for name, text in headers:
                at = _put_short(at, <bytes>name)
                at = _put_short(at, <bytes>text)
        gq_store32(p + 4, gq_crc_record(p, size))
        self._used += size
        self.count += 1
        return size

    def add(self, value, key=None, headers=None, int priority=2, int64_t timestamp_ns=0, int flags=0,
            int64_t offset=0):
        """Append one record and return its size. `value` None is a tombstone; `key` None is no key; `headers` is an
        iterable of (name, value) pairs of str or bytes."""
        cdef Py_buffer key_view, value_view
        cdef const uint8_t *key_at = NULL
        cdef const uint8_t *value_at = NULL
        cdef Py_ssize_t key_bytes = 0, value_bytes = 0
        cdef bint key_held = False, value_held = False
        cdef list pairs = None
        if priority < 0 or priority > PRIORITY_MAX:
            raise errors.PriorityInvalidError(
                f"priority {priority}; priorities are 0 to {PRIORITY_MAX}", priority=priority)
        if timestamp_ns < 0:
            raise errors.TimestampInvalidError("a timestamp must not be negative", timestamp_ns=timestamp_ns)
        if offset < 0 or offset == INT64_MAX:
            raise errors.RecordMalformedError("an offset is at least 0 and below 2**63 - 1", offset=offset)
        if flags & DERIVED or flags < 0 or flags > 255 or (flags & COMMIT and not flags & CONTROL):
            raise errors.RecordMalformedError(
                "headers, tombstone and null-key flags follow from the record; commit needs control", flags=flags)
        if headers is not None:
            pairs = [(_as_bytes(name), _as_bytes(text)) for name, text in headers]
        try:
            if key is None:
                flags |= NULL_KEY
            else:
                PyObject_GetBuffer(key, &key_view, PyBUF_SIMPLE)
                key_held = True
                key_at = <const uint8_t *>key_view.buf
                key_bytes = key_view.len
            if value is None:
                flags |= TOMBSTONE
            else:
                PyObject_GetBuffer(value, &value_view, PyBUF_SIMPLE)
                value_held = True
                value_at = <const uint8_t *>value_view.buf
                value_bytes = value_view.len
            return self._put(key_at, key_bytes, value_at, value_bytes, pairs, <uint8_t>priority, timestamp_ns, offset,
                             <uint8_t>flags)
        finally:
            if key_held:
                PyBuffer_Release(&key_view)
            if value_held:
                PyBuffer_Release(&value_view)

    def extend(self, values):
        """Append one keyless record of normal priority for every bytes object; returns how many.

        All or nothing: a refused value takes the ones before it back out."""
        cdef Py_ssize_t used, count
        if type(values) is not list:
            values = list(values)  # first, because an iterator could use this builder while it runs
        used = self._used
        count = self.count
        try:
            for value in values:
                if type(value) is bytes:
                    self._put(NULL, 0, <const uint8_t *>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), None, 2, 0, 0,
                              NULL_KEY)
                else:
                    self.add(value)
        except BaseException:
            self._used = used
            self.count = count
            raise
        return self.count - count

    def take(self):
        """The batch so far as a bytearray; the builder starts anew."""
        cdef object buffer = self._buffer
        if buffer is None:
            return bytearray()
        PyByteArray_Resize(buffer, self._used)
        self._reset()
        return buffer
