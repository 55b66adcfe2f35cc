"""Whatever is wrong, the answer has one shape; and no client can make the broker wait, hold or read without end."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from goqueue.errors import GoQueueError, InvalidRequestError, error_classes
from goqueue.frontends.http import HttpConfig
from goqueue.frontends.http.errors import STATUS, status_of


def error_of(body: bytes | str) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(body)["error"]
    assert error["code"].isupper()
    assert error["message"]
    assert isinstance(error["retriable"], bool)
    return error


def test_every_known_error_has_a_status() -> None:
    found = {code: status_of(kind("text")) for code, kind in error_classes().items()}
    assert {code: found[code] for code in found if code in STATUS and code != "LIMIT_EXCEEDED"} == {
        code: status for code, status in STATUS.items() if code in found and code != "LIMIT_EXCEEDED"
    }
    for kind in error_classes().values():
        assert (status_of(kind("text")) < 500) if issubclass(kind, InvalidRequestError) else True


def test_an_error_without_a_status_of_its_own_has_that_of_its_family() -> None:
    class UnheardOfError(InvalidRequestError):
        code = "UNHEARD_OF"

    class StrangeError(GoQueueError):
        code = "STRANGE"

    assert (status_of(UnheardOfError("x")), status_of(StrangeError("x"))) == (400, 500)


@pytest.mark.parametrize(
    "path", ["/", "/nowhere", "/v1", "/v1/", "/v1/v1/health", "/v2/topics", "/topics/a/b", "/health/"]
)
def test_an_unknown_path_is_not_found(shared: Any, path: str) -> None:
    answer = shared.client.get(path)
    assert (answer.status_code, error_of(answer.text)["code"]) == (404, "PATH_NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/topics", {"GET", "POST"}),
        ("DELETE", "/topics", {"GET", "POST"}),
        ("POST", "/topics/a", {"GET", "PATCH", "DELETE"}),
        ("POST", "/health", {"GET"}),
        ("GET", "/topics/a/messages", {"POST"}),
        ("DELETE", "/topics/a/partitions/0/messages", {"GET", "POST"}),
        ("PATCH", "/v1/topics", {"GET", "POST"}),
        ("BREW", "/topics", None),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(shared: Any, method: str, path: str, allow: set[str] | None) -> None:
    answer = shared.client.request(method, path)
    if allow is None:
        assert answer.status_code == 400
    else:
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == allow
    error_of(answer.text)


@pytest.mark.parametrize("path", ["/topics", "/topics/a/messages"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_json_that_does_not_say_so_is_refused(shared: Any, path: str, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    answer = shared.client.post(path, content=b'{"name": "typed", "messages": []}', headers=headers)
    assert (answer.status_code, error_of(answer.text)["code"]) == (415, "MEDIA_TYPE_UNSUPPORTED")
    assert "typed" not in shared.broker.topics.catalog


def test_a_native_batch_must_say_so_and_bodies_are_not_compressed(shared: Any) -> None:
    topic = shared.topic("typed-batch")
    path = f"/topics/{topic}/partitions/0/messages"
    assert shared.client.post(path, json={}).status_code == 415
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert shared.client.post(f"/topics/{topic}/messages", content=b"{}", headers=headers).status_code == 415


@pytest.mark.parametrize("body", [b"{", b"", b"\xff", b'{"name": NaN}', b'{"name": "\\ud800"}', b"[" * 100_000])
def test_malformed_json_for_the_control_plane_is_a_bad_request(shared: Any, body: bytes) -> None:
    answer = shared.client.post("/topics", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error_of(answer.text)


def test_the_same_tree_is_under_v1(shared: Any) -> None:
    client = shared.client
    assert client.post("/v1/topics", json={"name": "twin"}).status_code == 201
    answer = client.post("/v1/topics/twin/messages", json={"messages": [{"value": "a", "partition": 0}]})
    assert answer.status_code == 200
    for path in (
        "/topics/twin",
        "/topics/twin/partitions",
        "/topics/twin/partitions/0/messages",
        "/topics",
        "/version",
    ):
        assert client.get(f"/v1{path}").json() == client.get(path).json()
    for path in ("/health", "/livez", "/readyz", "/stats", "/metrics", "/openapi.json", "/docs"):
        assert client.get(f"/v1{path}").status_code == 200
    assert "/v1/openapi.json" in client.get("/v1/docs").text


def test_pipelined_requests_are_answered_in_their_order(shared: Any) -> None:
    topic = shared.topic("pipelined")
    body = b'{"messages": [{"value": "a"}], "acks": "leader"}'
    head = f"POST /topics/{topic}/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    request = head + b"content-length: %d\r\n\r\n%s" % (len(body), body)
    with socket.create_connection((shared.host, shared.port), timeout=10) as connection:
        connection.sendall(request * 5)
        data = b""
        while data.count(b'"offset"') < 5:
            data += connection.recv(65536)
    assert [n for n in range(5) if b'"offset":%d,' % n in data] == list(range(5))
    assert data.count(b"HTTP/1.1 200 OK") == 5


def test_a_client_that_asks_before_it_sends_is_told_to_go_on(shared: Any) -> None:
    topic = shared.topic("asked")
    body = b'{"messages": [{"value": "a"}]}'
    head = f"POST /topics/{topic}/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
    with socket.create_connection((shared.host, shared.port), timeout=10) as connection:
        connection.sendall(head + b"content-length: %d\r\nexpect: 100-continue\r\n\r\n" % len(body))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert shared.read_answer(connection)[0] == 200


def test_head_is_answered_without_a_body(shared: Any) -> None:
    answer = shared.client.head("/docs")
    assert (answer.status_code, answer.content) == (200, b"")
    assert shared.client.head("/health").status_code == 405


# -- our own faults ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/topics", "/topics/t/partitions/0/messages"])
def test_a_bug_is_a_500_without_its_traceback(start: Any, path: str) -> None:
    server = start()
    server.topic("t")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret detail")

    server.call(lambda: setattr(server.broker, "read", broken))
    server.call(lambda: setattr(server.broker.topics.catalog, "topics", broken))
    answer = server.client.get(path)
    assert (answer.status_code, error_of(answer.text)["code"]) == (500, "INTERNAL")
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


# -- limits -----------------------------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_refused_without_being_read(start: Any) -> None:
    server = start(http={"body_bytes_max": 1_000, "control_body_bytes_max": 500})
    for path, size in (("/topics/t/messages", 1_001), ("/topics", 501)):
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
        status, body = server.raw(head.encode())
        assert (status, error_of(body)["code"]) == (413, "BODY_TOO_LARGE")


def test_a_chunked_body_over_the_limit_is_refused_where_it_crosses_it(start: Any) -> None:
    server = start(http={"body_bytes_max": 1_000})
    server.topic("t")
    head = b"POST /topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    status, body = server.raw(head + b"400\r\n" + b"x" * 0x400 + b"\r\n")
    assert (status, error_of(body)["code"]) == (413, "BODY_TOO_LARGE")


def test_a_body_at_the_limit_is_read(start: Any) -> None:
    server = start(http={"body_bytes_max": 1_000})
    topic = server.topic("t")
    body = b'{"messages":[{"value":"%s"}]}'
    body = body % (b"x" * (1_000 - len(body) + 2))
    headers = {"content-type": "application/json"}
    assert server.client.post(f"/topics/{topic}/messages", content=body, headers=headers).status_code == 200


def test_a_large_body_arrives_whole(shared: Any) -> None:
    topic = shared.topic("large")
    value = "x" * 5_000_000
    assert shared.publish(topic, {"value": value}).status_code == 200
    assert shared.read(topic)["messages"][0]["value"] == value


def test_a_head_without_end_is_refused(start: Any) -> None:
    server = start(http={"head_bytes_max": 2_000})
    status, body = server.raw(b"GET /health HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 3_000)
    assert (status, error_of(body)["code"]) == (431, "HEAD_TOO_LARGE")


@pytest.mark.parametrize(
    "request_bytes", [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET \xff HTTP/1.1\r\n\r\n", b"NONSENSE\r\n\r\n"]
)
def test_what_is_not_http_gets_the_uniform_error(shared: Any, request_bytes: bytes) -> None:
    status, body = shared.raw(request_bytes)
    assert (status, error_of(body)["code"]) == (400, "INVALID_REQUEST")


@pytest.mark.parametrize(
    "part",
    [
        b"",
        b"POST /topics/t/messages HTT",
        b"POST /topics/t/messages HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
    ],
)
def test_a_request_that_does_not_arrive_is_given_up(start: Any, part: bytes) -> None:
    server = start(http={"request_timeout_ms": 100})
    server.topic("t")
    status, body = server.raw(part)
    assert (status, error_of(body)["code"]) == (408, "REQUEST_TIMEOUT")
    server.client.close()
    server.wait_until(lambda: not server.server._uvicorn.server_state.connections)


def test_an_answer_that_is_not_taken_is_given_up(start: Any) -> None:
    server = start(http={"answer_timeout_ms": 100})
    topic = server.topic("t")
    for _ in range(3):
        server.publish(topic, {"value": "x" * 15_000_000})
    server.client.close()
    with socket.create_connection((server.host, server.port)) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        request = f"GET /topics/{topic}/partitions/0/messages?max_bytes=16000000 HTTP/1.1\r\nhost: x\r\n\r\n"
        connection.sendall(request.encode() * 3)
        server.wait_until(lambda: server.server.accepted == 2)
        server.wait_until(lambda: not server.server._uvicorn.server_state.connections)


def test_connections_beyond_the_limit_are_refused_and_those_within_served(start: Any) -> None:
    server = start(http={"connections_max": 2})
    held = [socket.create_connection((server.host, server.port)) for _ in range(2)]
    server.wait_until(lambda: server.server.accepted == 2)
    status, body = server.raw(b"")
    assert (status, error_of(body)["code"], error_of(body)["retriable"]) == (503, "TOO_MANY_CONNECTIONS", True)
    held[0].sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
    assert server.read_answer(held[0])[0] == 200
    held[0].close()
    server.wait_until(lambda: len(server.server._uvicorn.server_state.connections) == 1)
    assert server.client.get("/livez").status_code == 200
    held[1].close()


def test_an_idle_connection_is_closed(start: Any) -> None:
    server = start(http={"keep_alive_timeout_ms": 1})
    with socket.create_connection((server.host, server.port), timeout=10) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert server.read_answer(connection)[0] == 200
        assert connection.recv(1) == b""


@pytest.mark.parametrize(
    "wrong",
    [{"port": -1}, {"port": 70_000}, {"port": "80"}, {"host": ""}, {"body_bytes_max": 0}, {"connections_max": True}],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        HttpConfig(**wrong)
