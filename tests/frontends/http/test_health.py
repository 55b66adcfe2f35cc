"""Liveness, readiness, health, version, statistics, metrics, and what outlives a restart."""

from __future__ import annotations

import re
from typing import Any

import pytest

from goqueue import __version__


def test_a_healthy_broker_says_so_everywhere(shared: Any) -> None:
    assert shared.client.get("/livez").json() == {"status": "ok"}
    ready = shared.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"], ready.json()["reasons"]) == (200, "ok", [])
    assert "details" not in ready.json()
    health = shared.client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "ok")
    assert health.json()["checks"]["disk"] == "ok"


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=1"])
def test_verbose_readiness_has_numbers(shared: Any, query: str) -> None:
    assert shared.client.get(f"/readyz?{query}").json()["details"]["disk_free_bytes"] > 0


def test_a_draining_broker_is_alive_but_not_ready(start: Any) -> None:
    server = start()
    server.call(server.broker.drain)
    assert server.client.get("/livez").status_code == 200
    ready = server.client.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (503, "not_ready")
    assert any("draining" in reason for reason in ready.json()["reasons"])
    health = server.client.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "unavailable")


def test_the_version_is_the_packages_and_the_commit_comes_from_the_build(
    shared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOQUEUE_COMMIT", raising=False)
    assert shared.client.get("/version").json() == {"version": __version__, "commit": "unknown"}
    monkeypatch.setenv("GOQUEUE_COMMIT", "abc123")
    assert shared.client.get("/version").json()["commit"] == "abc123"


def test_statistics_count_what_is_stored(start: Any) -> None:
    server = start()
    topic = server.topic("t", partitions=2)
    before = server.client.get("/stats").json()
    assert (before["topics"], before["partitions"], before["messages"]) == (1, 2, 0)
    server.publish(topic, {"value": "a"}, {"value": "b"})
    after = server.client.get("/stats").json()
    assert after["messages"] == 2
    assert after["bytes"] > before["bytes"]
    assert after["uptime_ms"] >= before["uptime_ms"]
    assert re.fullmatch(r"([0-9]+h)?([0-9]+m)?[0-9.]+s", after["uptime"])


# -- metrics ----------------------------------------------------------------------------------------------------


def samples(server: Any) -> dict[str, float]:
    answer = server.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


def test_every_family_of_metrics_exists(start: Any) -> None:
    server = start()
    server.topic("t")
    found = {name.partition("{")[0] for name in samples(server)}
    assert found >= {
        "goqueue_broker_info",
        "goqueue_broker_phase",
        "goqueue_broker_ready",
        "goqueue_broker_uptime_seconds",
        "goqueue_broker_topics",
        "goqueue_broker_partitions",
        "goqueue_broker_connections",
        "goqueue_broker_connections_accepted_total",
        "goqueue_broker_connections_refused_total",
        "goqueue_broker_http_requests_total",
        "goqueue_broker_http_request_duration_seconds_bucket",
        "goqueue_broker_published_records_total",
        "goqueue_broker_published_bytes_total",
        "goqueue_broker_fetched_bytes_total",
        "goqueue_storage_size_bytes",
        "goqueue_storage_segments",
        "goqueue_storage_log_start_offset",
        "goqueue_storage_log_end_offset",
        "goqueue_storage_syncs_total",
        "goqueue_storage_damaged_partitions",
        "goqueue_storage_failed_partitions",
        "goqueue_storage_disk_used_percent",
        "goqueue_storage_disk_free_bytes",
        "goqueue_storage_compactions_total",
        "goqueue_storage_deleted_segments_total",
        "goqueue_storage_scrubbed_bytes_total",
        "process_resident_memory_bytes",
    }


def test_metrics_move_with_what_is_published_and_read(start: Any) -> None:
    server = start(http={"metrics_per_partition": True})
    topic = server.topic("t", partitions=2)
    before = samples(server)
    server.publish(topic, *({"value": "x" * 100, "partition": 1} for _ in range(10)), acks="all")
    server.read(topic, 1)
    server.publish(topic, {"value": "x", "partition": 9})
    after = samples(server)
    moved = {name: after[name] - before.get(name, 0.0) for name in after}
    assert moved['goqueue_broker_published_records_total{topic="t"}'] == 10
    assert moved['goqueue_broker_published_bytes_total{topic="t"}'] > 1_000
    assert moved['goqueue_broker_fetched_bytes_total{topic="t"}'] > 1_000
    assert moved['goqueue_storage_size_bytes{topic="t"}'] > 1_000
    assert moved['goqueue_storage_log_end_offset{topic="t"}'] == 10
    assert moved['goqueue_storage_syncs_total{topic="t"}'] >= 1
    assert after['goqueue_storage_partition_log_end_offset{partition="1",topic="t"}'] == 10
    assert after['goqueue_broker_phase{phase="ready"}'] == 1
    route = 'route="/topics/{topic}/messages"'
    assert moved[f'goqueue_broker_http_requests_total{{method="POST",{route},status="200"}}'] == 1
    assert moved[f'goqueue_broker_http_requests_total{{method="POST",{route},status="400"}}'] == 1
    assert moved[f'goqueue_broker_http_request_duration_seconds_count{{method="POST",{route}}}'] == 2
    assert after['goqueue_broker_connections{face="http"}'] >= 1


def test_labels_are_routes_and_never_what_a_client_made_up(start: Any) -> None:
    server = start()
    for n in range(5):
        server.client.get(f"/nowhere-{n}")
        server.client.get(f"/topics/nothing-{n}")
    found = [name for name in samples(server) if name.startswith("goqueue_broker_http_requests_total")]
    assert not [name for name in found if "nowhere" in name or "nothing" in name]
    assert any('route="unrouted"' in name for name in found)
    assert any('route="/topics/{topic}"' in name for name in found)


def test_a_broker_without_partition_metrics_has_none(start: Any) -> None:
    server = start()
    server.topic("t")
    assert not [name for name in samples(server) if name.startswith("goqueue_storage_partition_")]


# -- restart ----------------------------------------------------------------------------------------------------


def test_topics_settings_and_messages_outlive_a_restart(start: Any) -> None:
    first = start()
    topic = first.topic("kept", partitions=2, retention_ms=12_345)
    first.client.patch(f"/topics/{topic}", json={"config": {"max_message_bytes": 99}})
    first.publish(topic, {"value": "a", "key": "k", "partition": 1, "headers": {"h": "1"}})
    first.topic("dropped")
    first.client.delete("/topics/dropped")
    described, page = first.client.get(f"/topics/{topic}").json(), first.read(topic, 1)
    first.stop()
    second = start(first.path)
    assert second.client.get(f"/topics/{topic}").json() == described
    assert second.read(topic, 1) == page
    assert second.client.get("/topics/dropped").status_code == 404
    assert described["config"]["retention_ms"] == 12_345
    assert described["config"]["max_message_bytes"] == 99
