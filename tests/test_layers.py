"""Imports point down only: the layers of ARCHITECTURE.md, as data, checked against every module's source.

A module may import its own package and the packages of lower layers. Packages that share a layer are siblings and
never import each other. Imports under `TYPE_CHECKING` and inside functions count: they are dependencies all the same.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

# Top first, as in ARCHITECTURE.md. A new package fails the test until it is given its place here.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("goqueue.testing",),
    ("goqueue.__main__",),
    ("goqueue.cli", "goqueue.console", "pyspark_goqueue"),
    ("goqueue_spark",),
    ("goqueue.embedded",),
    ("goqueue.client",),
    ("goqueue.server",),
    (
        "goqueue.frontends.http",
        "goqueue.frontends.wire",
        "goqueue.frontends.grpc",
        "goqueue.frontends.kafka",
        "goqueue.frontends.sqs",
    ),
    ("goqueue.frontends",),
    ("goqueue.broker",),
    ("goqueue.cluster",),
    ("goqueue.coordination",),
    (
        "goqueue.delivery",
        "goqueue.delays",
        "goqueue.groups",
        "goqueue.transactions",
        "goqueue.schemas",
        "goqueue.tracing",
        "goqueue.replication",
        "goqueue.metadata",
        "goqueue.tenancy",
        "goqueue.security",
    ),
    ("goqueue.storage",),
    ("goqueue.protocol",),
    ("goqueue.record",),
    ("goqueue.host",),
    ("goqueue.model",),
    ("goqueue.errors", "goqueue.stdx"),
    ("goqueue",),  # the root itself: the version, nothing else
)

# Packages that only these may import, besides themselves, wherever they stand in the layers.
IMPORTERS_ALLOWED: dict[str, frozenset[str]] = {
    "goqueue.testing": frozenset(),
    "goqueue.server": frozenset({"goqueue.__main__", "goqueue.cli", "goqueue.embedded"}),
}

RANK = {package: rank for rank, layer in enumerate(reversed(LAYERS)) for package in layer}


def package_of(module: str) -> str | None:
    """The longest entry of LAYERS that contains `module`; the root contains only itself."""
    name = module
    while name not in RANK or (name == "goqueue" and module != "goqueue"):
        name, dot, _ = name.rpartition(".")
        if not dot:
            return None
    return name


def imported_modules(source: str, *, module: str, is_package: bool) -> Iterator[str]:
    """Every module of ours that `source` imports, by absolute name."""
    parts = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            # `from goqueue import storage` imports goqueue.storage; `from goqueue import __version__` the root.
            names = [f"{origin}.{alias.name}" for alias in node.names]
            names = [name if package_of(name) else origin for name in names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in {"goqueue", "goqueue_spark"})


def violations(source: str, *, module: str, is_package: bool = False) -> list[str]:
    importer = package_of(module)
    if importer is None:
        return [f"{module} belongs to no layer: add its package to LAYERS"]
    found = []
    for name in imported_modules(source, module=module, is_package=is_package):
        target = package_of(name)
        if target is None:
            found.append(f"{module} imports {name}, which belongs to no layer")
        elif target == importer:
            continue
        elif target in IMPORTERS_ALLOWED and importer not in IMPORTERS_ALLOWED[target]:
            found.append(f"{module} imports {name}: {target} is not for {importer}")
        elif RANK[target] == RANK[importer]:
            found.append(f"{module} imports {name}: siblings never import each other")
        elif RANK[target] > RANK[importer]:
            found.append(f"{module} imports {name}: imports point down only")
    return found


def modules() -> list[tuple[str, Path]]:
    found = []
    for path in sorted([*SOURCE.rglob("*.py"), *SOURCE.rglob("*.pyi")]):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def test_every_module_imports_downwards_only() -> None:
    checked = modules()
    assert checked, f"no modules under {SOURCE}"
    found = [
        violation
        for module, path in checked
        for violation in violations(path.read_text(), module=module, is_package=path.stem == "__init__")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source", "reason"),
    [
        ("goqueue.storage.log", "import goqueue.broker.api", "down only"),
        ("goqueue.storage.log", "from goqueue import broker", "down only"),
        ("goqueue.storage.log", "from ..broker import api", "down only"),
        ("goqueue.storage.log", "from .. import broker", "down only"),
        ("goqueue.storage.log", "def f():\n    from goqueue.broker import api", "down only"),
        ("goqueue.storage.log", "if TYPE_CHECKING:\n    from goqueue.broker import api", "down only"),
        ("goqueue.errors", "from goqueue.model import Offset", "down only"),
        ("goqueue.broker.api", "from goqueue_spark import source", "down only"),
        ("goqueue.frontends.limits", "import goqueue.frontends.http", "down only"),
        ("goqueue.delivery.machine", "from goqueue.groups import Group", "siblings"),
        ("goqueue.frontends.http.app", "from goqueue.frontends.kafka import codec", "siblings"),
        ("goqueue.storage.log", "from goqueue.testing import disk", "not for"),
        ("goqueue.cli.main", "import goqueue.testing.simulate", "not for"),
        ("goqueue.client.pool", "from goqueue.server import Server", "not for"),
        ("goqueue.testing.cluster", "from goqueue.server import Server", "not for"),
        ("goqueue.record.kernel", "import goqueue.utils", "no layer"),
        ("goqueue.utils", "", "no layer"),
    ],
)
def test_a_violation_is_caught(module: str, source: str, reason: str) -> None:
    found = violations(source, module=module)
    assert len(found) == 1, found
    assert reason in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("goqueue.storage.log", "import os\nfrom goqueue import __version__\nfrom goqueue.record import kernel"),
        ("goqueue.storage.log", "from . import segment\nfrom .index import Index\nfrom goqueue.storage import x"),
        ("goqueue.frontends.http.app", "from goqueue.frontends.limits import Limits\nfrom goqueue.broker import api"),
        ("goqueue.cli.main", "from goqueue.server import Server"),
        ("goqueue.testing.simulate", "from goqueue.broker import api"),
        ("goqueue_spark.source", "from goqueue.client import Client"),
    ],
)
def test_imports_that_point_down_pass(module: str, source: str) -> None:
    assert violations(source, module=module) == []


def test_a_relative_import_in_a_package_root_is_resolved_from_the_package() -> None:
    assert violations("from .log import Log", module="goqueue.storage", is_package=True) == []
    assert violations("from ..broker import api", module="goqueue.storage", is_package=True) != []
