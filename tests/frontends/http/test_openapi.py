"""The OpenAPI document says all there is and nothing that is not, and the server keeps to it whatever it is sent."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import pytest

from goqueue.metadata.catalog import PARTITIONS_PER_TOPIC_MAX

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies, at import
    import schemathesis
    from hypothesis import HealthCheck, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        negative_data_rejection,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
        unsupported_method,
    )

OPERATIONS = {
    ("GET", "/health"),
    ("GET", "/livez"),
    ("GET", "/readyz"),
    ("GET", "/version"),
    ("GET", "/stats"),
    ("GET", "/metrics"),
    ("POST", "/topics"),
    ("GET", "/topics"),
    ("GET", "/topics/{topic}"),
    ("PATCH", "/topics/{topic}"),
    ("DELETE", "/topics/{topic}"),
    ("GET", "/topics/{topic}/partitions"),
    ("GET", "/topics/{topic}/delayed"),
    ("GET", "/topics/{topic}/delayed/{partition}/{offset}"),
    ("PATCH", "/topics/{topic}/delayed/{partition}/{offset}"),
    ("DELETE", "/topics/{topic}/delayed/{partition}/{offset}"),
    ("GET", "/delay/stats"),
    ("POST", "/topics/{topic}/messages"),
    ("GET", "/topics/{topic}/partitions/{partition}/messages"),
    ("POST", "/topics/{topic}/partitions/{partition}/messages"),
    ("GET", "/groups"),
    ("GET", "/groups/{group}"),
    ("DELETE", "/groups/{group}"),
    ("POST", "/groups/{group}/join"),
    ("POST", "/groups/{group}/join/cooperative"),
    ("POST", "/groups/{group}/heartbeat"),
    ("POST", "/groups/{group}/heartbeat/cooperative"),
    ("POST", "/groups/{group}/leave"),
    ("POST", "/groups/{group}/leave/cooperative"),
    ("POST", "/groups/{group}/revoke"),
    ("GET", "/groups/{group}/assignment"),
    ("GET", "/groups/{group}/cooperative"),
    ("GET", "/groups/{group}/rebalance/stats"),
    ("GET", "/rebalance/stats"),
    ("GET", "/groups/{group}/poll"),
    ("POST", "/groups/{group}/offsets"),
    ("GET", "/groups/{group}/offsets"),
    ("POST", "/groups/{group}/offsets/reset"),
}
NAME = re.compile("[A-Za-z0-9._-]{1,249}")
METHODS = {"get", "post", "put", "patch", "delete"}


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


def test_the_document_has_every_operation_and_its_errors(shared: Any) -> None:
    document = shared.client.get("/openapi.json").json()
    found = operations(document)
    assert set(found) == OPERATIONS
    for key, operation in found.items():
        assert "422" not in operation["responses"], key
        refusals = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert refusals, key
    assert [server["url"] for server in document["servers"]] == ["/", "/v1"]


def test_every_reference_of_the_document_resolves(shared: Any) -> None:
    document = shared.client.get("/openapi.json").json()

    def references(node: object) -> list[str]:
        if isinstance(node, dict):
            here = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
            return here + [found for value in node.values() for found in references(value)]
        return [found for value in node for found in references(value)] if isinstance(node, list) else []

    names = {reference.removeprefix("#/components/schemas/") for reference in references(document)}
    assert names <= set(document["components"]["schemas"])
    assert {"Error", "PublishRequest", "Page"} <= names


def test_there_are_interactive_docs(shared: Any) -> None:
    assert "/openapi.json" in shared.client.get("/docs").text


@pytest.fixture(scope="module")
def schema(shared: Any) -> Any:
    shared.topic("known", partitions=2)
    shared.publish("known", *({"value": str(n), "partition": 0} for n in range(10)))
    # A long poll that a wrong case may ask for ends with the broker's maximum.
    shared.call(lambda: setattr(shared.broker, "config", replace(shared.broker.config, wait_max_ms=10)))
    return schemathesis.openapi.from_url(f"{shared.url}/openapi.json")


def keep_small(case: Any, mode: GenerationMode) -> None:
    """Aim cases at places that exist, and let none create thousands of partitions or wait for a minute."""
    places = case.path_parameters or {}
    if case.method != "DELETE" and NAME.fullmatch(str(places.get("topic", ""))):
        places["topic"] = "known"  # what is wrong with a case is then something else
    if mode is GenerationMode.POSITIVE and "partition" in places:
        places["partition"] = int(places["partition"]) % 3
    count = case.body.get("num_partitions") if isinstance(case.body, dict) else None
    if isinstance(count, int) and 3 < count <= PARTITIONS_PER_TOPIC_MAX:
        case.body["num_partitions"] = 3
    if mode is GenerationMode.POSITIVE and isinstance(case.query, dict):
        case.query.pop("wait", None)


CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
    unsupported_method,
    negative_data_rejection,
]
REJECTION = [negative_data_rejection]


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["right", "wrong"])
@pytest.mark.parametrize("operation", sorted(OPERATIONS), ids=" ".join)
def test_answers_conform_whatever_is_sent(schema: Any, operation: tuple[str, str], mode: GenerationMode) -> None:
    method, path = operation
    described = schema[path][method]
    if mode is GenerationMode.NEGATIVE and not (list(described.iter_parameters()) or described.body):
        return  # nothing can be wrong where nothing is given

    @settings(max_examples=25, database=None, suppress_health_check=list(HealthCheck))
    @given(case=described.as_strategy(generation_mode=mode))
    def conforms(case: Any) -> None:
        keep_small(case, mode)
        answer = case.call()
        if answer.status_code == 207:
            # Right and wrong messages in one request: the right ones are stored and the wrong ones refused.
            assert {"error" in result for result in answer.json()["results"]} == {True, False}
        case.validate_response(answer, checks=[c for c in CHECKS if answer.status_code != 207 or c not in REJECTION])

    conforms()
