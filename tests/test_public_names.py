"""Public names: every package says in a sorted `__all__` what it offers, and all of it exists."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

PACKAGES = sorted(
    ".".join(path.parent.relative_to(SOURCE).parts)
    for path in (SOURCE / "goqueue").rglob("__init__.py")
    if not any(part.startswith("_") for part in path.parent.relative_to(SOURCE).parts)
)

# The exact names of the packages whose surface is a promise. Changing a line here is changing the public interface.
PINNED: dict[str, frozenset[str]] = {
    "goqueue": frozenset({"__version__", "open"}),
    "goqueue.client": frozenset(
        {
            "Client",
            "ClientConfig",
            "FetchedBlock",
            "Consumer",
            "ConsumerConfig",
            "Producer",
            "ProducerConfig",
            "Reader",
            "SendManyResult",
            "SendResult",
            "Start",
            "SyncClient",
            "SyncConsumer",
            "SyncProducer",
            "SyncReader",
        }
    ),
}


def sort_key(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order ruff keeps (RUF022)."""
    group = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return group, name


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_sorted_without_duplicates_and_resolves(package: str) -> None:
    module = importlib.import_module(package)
    names = module.__all__
    assert list(names) == sorted(set(names), key=sort_key)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", sorted(PINNED))
def test_pinned_packages_offer_exactly_these_names(package: str) -> None:
    assert frozenset(importlib.import_module(package).__all__) == PINNED[package]
