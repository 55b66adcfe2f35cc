"""`goqueue delay` and `goqueue produce --delay`."""

from __future__ import annotations

import json

from tests.cli.conftest import Run


def test_produce_list_show_reschedule_cancel(run: Run, topic: str) -> None:
    sent = json.loads(run("produce", topic, "later", "-p", "0", "--delay", "1h", "-o", "json").out)
    assert sent["offset"] == 0
    assert sent["deliver_at"] > 0
    assert run("produce", topic, "at", "-p", "0", "--deliver-at", "2001-01-01T00:00:00Z").code == 0
    listed = json.loads(run("delay", "list", topic, "-o", "json").out)
    assert [message["offset"] for message in listed] == [0]
    assert "REMAINING" in run("delay", "list", topic).out
    assert "pending" in run("delay", "show", topic, "0", "0").out
    moved = json.loads(run("delay", "reschedule", topic, "0", "0", "--delay", "2h", "-o", "json").out)
    assert moved["remaining_ms"] > 7_000_000
    assert run("delay", "cancel", topic, "0", "0").out.startswith("cancelled")
    assert json.loads(run("delay", "stats", "-o", "json").out)["cancelled"] >= 1
    assert "lateness_max_ms" in run("delay", "stats").out


def test_a_message_that_is_out_cannot_be_cancelled(run: Run, topic: str) -> None:
    run("produce", topic, "x", "-p", "0", "--delay", "1ms")
    assert run("consume", topic, "--from-beginning", "-n", "1").code == 0
    late = run("delay", "cancel", topic, "0", "0")
    assert late.code == 1
    assert "released" in late.out


def test_wrong_use(run: Run, topic: str) -> None:
    assert run("produce", topic, "x", "--delay", "1h", "--deliver-at", "1").code == 2
    assert run("delay", "reschedule", topic, "0", "0").code == 2
    assert "DELAY_TOO_LONG" in run("produce", topic, "x", "--delay", "9999h").err
    assert "DELAYED_NOT_FOUND" in run("delay", "show", topic, "0", "0").err
    assert "INVALID_REQUEST" in run("produce", topic, "x", "--delay", "soon").err
