"""CRC32C: known vectors, and all implementations at hand agree."""

from __future__ import annotations

from collections.abc import Iterator

import crc32c as library
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.record import _kernel as kernel
from goqueue.testing import reference

# RFC 3720 B.4, and the check value of the CRC catalogue.
VECTORS = [
    (b"123456789", 0xE3069283),
    (b"", 0),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.fixture(params=["hardware", "software"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    used = kernel.use_hardware_crc(request.param == "hardware")
    if request.param == "hardware" and not used:
        pytest.skip("this CPU has no CRC32C instruction")
    yield request.param
    kernel.use_hardware_crc(True)


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_known_vectors(form: str, data: bytes, expected: int) -> None:
    assert kernel.crc32c(data) == expected
    assert reference.crc32c(data) == expected


@given(st.binary(max_size=300), st.integers(0, 300))
def test_all_forms_agree_and_can_be_continued(data: bytes, middle: int) -> None:
    expected = reference.crc32c(data)
    assert library.crc32c(data) == expected
    for allow in (False, True):
        kernel.use_hardware_crc(allow)
        assert kernel.crc32c(data) == expected
        assert kernel.crc32c(data[middle:], kernel.crc32c(data[:middle])) == expected


@given(st.binary(max_size=200))
def test_records_sealed_by_one_form_are_accepted_by_the_other(value: bytes) -> None:
    try:
        for allow in (True, False):
            kernel.use_hardware_crc(allow)
            builder = kernel.BatchBuilder()
            builder.add(value)
            batch = builder.take()
            kernel.use_hardware_crc(not allow)
            assert kernel.verify(batch).count == 1
            assert batch == reference.encode_record(value)
    finally:
        kernel.use_hardware_crc(True)
