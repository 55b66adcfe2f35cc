"""Options of the source: every mistake is named, and the right name is offered."""

from __future__ import annotations

import pytest

from goqueue.errors import ConfigurationError
from goqueue_spark.options import EARLIEST, Edge, read_options


def problem(*, streaming: bool = False, **given: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_options(given, streaming=streaming)
    return caught.value.message


def test_a_batch_reads_everything_and_a_stream_what_comes_unless_told_otherwise() -> None:
    batch = read_options({"subscribe": "orders"}, streaming=False)
    stream = read_options({"subscribe": "orders"}, streaming=True)
    assert (batch.starting.edge, batch.ending.edge) == (Edge.EARLIEST, Edge.LATEST)
    assert stream.starting.edge is Edge.LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers


def test_names_are_taken_in_any_case_and_topics_with_spaces_around() -> None:
    options = read_options({"SUBSCRIBE": " a , b", "minpartitions": "4"}, streaming=False)
    assert options.subscribe == ("a", "b")
    assert options.min_partitions == 4


def test_offsets_by_partition_are_read_from_json() -> None:
    options = read_options({"subscribe": "a", "startingOffsets": '{"a": {"0": 7, "1": -2}}'}, streaming=False)
    assert options.starting.offsets == {"a": {0: 7, 1: EARLIEST}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrbe": "a"}, "did you mean 'subscribe'?"),
        ({"kafka.bootstrap.servers": "h:1", "subscribe": "a"}, "did you mean 'bootstrap'?"),
        ({"nonsense": "1", "subscribe": "a"}, "known: bootstrap"),
        ({}, "none is given"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "not subscribe and assign"),
        ({"subscribe": ""}, "names no topic"),
        ({"subscribe": "../etc"}, "not allowed"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": '{"a": "0"}'}, "needs a list of partitions"),
        ({"assign": "a"}, "assign is neither"),
        ({"subscribe": "a", "startingOffsets": "first"}, "startingOffsets is neither"),
        ({"subscribe": "a", "startingOffsets": '{"a": [1]}'}, "offsets by partition"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "offsets by partition"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "nothing would be read"),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "1"}, "exclude each other"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions must be"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "true or false"),
        ({"subscribe": "a", "isolation": "dirty"}, "isolation must be one of"),
        ({"subscribe": "a", "bootstrap": "nowhere"}, "is not HOST:PORT"),
        ({"subscribe": "a", "bootstrap": "h:1", "path": "/data"}, "either path or bootstrap"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5"}, "is for streams"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(given: dict[str, str], said: str) -> None:
    assert said in problem(**given)


def test_a_stream_has_no_end() -> None:
    assert "is for batch reads" in problem(streaming=True, subscribe="a", endingOffsets="latest")


def test_all_problems_are_reported_at_once() -> None:
    text = problem(subscrbe="a", minPartitions="x")
    assert "subscribe" in text
    assert "minPartitions" in text
