"""The kernel and the plain-Python reference give the same answer, the same error and the same side effects."""

from __future__ import annotations

from array import array
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.errors import RecordError
from goqueue.record import _kernel as kernel
from goqueue.testing import fuzz, reference
from goqueue.testing.fuzz import Case, Fuzzer, differences

small = st.binary(max_size=40)
records = st.builds(
    reference.encode_record,
    st.none() | small | st.binary(min_size=3000, max_size=5000),
    st.none() | st.sampled_from([b"", b"a", b"b"]) | small,
    st.lists(st.tuples(st.binary(max_size=8) | st.text(max_size=4), small), max_size=4),
    priority=st.integers(0, 4),
    timestamp_ns=st.sampled_from([0, 1]) | st.integers(0, 2**63 - 1),
    flags=st.sampled_from([0, 0x01, 0x08, 0x18, 0x20, 0x40, 0x61]),
    offset=st.integers(0, 12) | st.integers(0, 2**63 - 2),
)
flags = st.sampled_from([0, 0, 0x28, 0x04]) | st.integers(0, 255)
low = st.integers(0, 12) | st.integers(0, 2**63 - 1)
cursors = st.builds(
    reference.Cursor,
    segment_base=st.just(0),
    position=st.integers(0, 2**32),
    next_index_at=st.integers(0, 2**32),
    max_timestamp_ns=st.integers(-1, 2**63 - 1),
)


def cases(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[Case]:
    return st.builds(
        Case,
        data=data,
        value_bytes_max=st.sampled_from([reference.VALUE_BYTES_MAX, 20, 2**32 - 1]),
        forbidden_flags=flags,
        base_offset=low,
        timestamp_ns=st.integers(0, 2**63 - 1),
        force_timestamp=st.booleans(),
        cursor=cursors,
        allow_gaps=st.booleans(),
        skip_flags=flags,
        min_offset=low,
        max_offset=low | st.just(reference.OFFSET_END),
        limit=st.integers(-1, 3),
        allow_partial=st.booleans(),
        position=st.integers(-1, 300) | st.just(2**63 - 1),
        wanted_ns=st.integers(0, 2**63 - 1) | st.sampled_from([0, 1]),
    )


def broken(batch: list[bytes], seed: int, repair: bool) -> bytes:
    rng = Random(seed)
    data = bytearray().join(batch)
    rng.choice(fuzz.MUTATIONS)(rng, data, rng.choice((0, len(data) - len(batch[-1]))))
    if repair:
        fuzz.repair_checksums(data)
    return bytes(data)


@given(cases(st.lists(records, min_size=1, max_size=6).map(b"".join)))
def test_on_valid_records(case: Case) -> None:
    assert differences(case) == []


@settings(max_examples=300)
@given(cases(st.builds(broken, st.lists(records, min_size=1, max_size=4), st.integers(0, 2**32), st.booleans())))
def test_on_broken_records(case: Case) -> None:
    assert differences(case) == []


@given(cases(st.binary(max_size=200) | st.binary(max_size=80).map(lambda tail: b"GQ\x01" + tail)))
def test_on_hostile_bytes(case: Case) -> None:
    assert differences(case) == []


@given(cases(st.lists(records, min_size=1, max_size=3).map(b"".join)), st.data())
def test_on_every_kind_of_cut(case: Case, data: st.DataObject) -> None:
    end = data.draw(st.integers(0, len(case.data) - 1))
    assert differences(Case(data=case.data[:end], base_offset=case.base_offset, allow_partial=True)) == []


def test_consecutive_batches_of_several_index_intervals_agree() -> None:
    ours, theirs = kernel.IndexCursor(100), reference.Cursor(segment_base=100)
    offset = 100
    for size in (0, 10, 4062, 1, 4096, 9000, 200):
        batch = reference.encode_record(bytes(size)) * 3
        buffer = bytearray(batch)
        facts = kernel.stamp(buffer, offset, 1000 - size // 10, ours)
        stamped, expected, theirs = reference.stamp(batch, offset, 1000 - size // 10, theirs)
        assert buffer == stamped
        assert (facts.offset_entries, facts.time_entries) == (expected.offset_entries, expected.time_entries)
        assert (ours.position, ours.next_index_at) == (theirs.position, theirs.next_index_at)
        offset += 3


@given(
    st.sampled_from([b"due", b"other", b"du"]),
    st.binary(max_size=3) | st.integers(0, 10**21).map(lambda number: str(number).encode()) | st.just(b"0" * 20),
    st.sampled_from([0x20, 0x28, 0x08, 0]),
    st.integers(0, 3),
)
def test_due_times_agree(name: bytes, text: bytes, flags: int, min_offset: int) -> None:
    batch = reference.encode_record(b"v", None, [(name, text), (b"due", b"1")], flags=flags, offset=2)
    pairs, controls = kernel.collect_delayed(batch, b"due", min_offset)
    expected, kept = reference.collect_delayed(batch, b"due", min_offset)
    assert array("q", pairs).tolist() == [number for pair in expected for number in pair]
    assert [record.raw() for record in controls] == kept


@given(records, st.integers(0, 10**6))
def test_every_flipped_bit_is_noticed(record: bytes, bit: int) -> None:
    damaged = bytearray(record)
    damaged[bit // 8 % len(record)] ^= 1 << bit % 8
    with pytest.raises(RecordError):
        kernel.verify(damaged)


@pytest.mark.parametrize("compare", [True, False])
def test_a_short_run_of_the_fuzzer_finds_nothing(compare: bool) -> None:
    fuzzer = Fuzzer(seed=7, compare=compare)
    for _ in range(150):
        report = fuzzer.run_round()
        assert report is None, report
    assert fuzzer.inputs == 150 * fuzz.CASES_PER_BATCH


def test_the_fuzzer_reports_a_difference(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(reference, "resync", lambda data, position: -7)
    assert fuzz.main(["--seconds", "5", "--seed", "3"]) == 1
    shown = capsys.readouterr().out
    assert "seed 3" in shown
    assert "resync: kernel" in shown
    assert "input " in shown
