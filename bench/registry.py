"""The cases there are. A suite is a module in `bench.suites`; its cases are the functions it marks with `@case`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.measurement import Measurement
from bench.workspace import Workspace

# In the order in which they run. A new suite is a new module and a new word here.
SUITES = ("kernel", "append", "read", "lookup", "opening", "wire", "client", "http", "scale", "groups")
# Run only when named: they start a JVM and take minutes.
SUITES_ON_DEMAND = ("spark",)

CaseFunction = Callable[[Workspace], Iterator[Measurement]]
_cases: list[Case] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    # suite.name
    name: str
    title: str
    # What is on disk when the caller gets its answer; "none" where nothing is written.
    durability: str
    run: CaseFunction


def case(title: str, *, durability: str = "none") -> Callable[[CaseFunction], CaseFunction]:
    def register(function: CaseFunction) -> CaseFunction:
        suite = function.__module__.rpartition(".")[2]
        name = f"{suite}.{function.__name__}"
        _cases.append(Case(name=name, title=title, durability=durability, run=function))
        return function

    return register


def select(names: list[str]) -> list[Case]:
    """Cases by suite or by full name, in the order of SUITES; all of them for no names."""
    asked = {name.partition(".")[0] for name in names}
    suites = (*SUITES, *(suite for suite in SUITES_ON_DEMAND if suite in asked))
    for suite in suites:
        importlib.import_module(f"bench.suites.{suite}")
    ordered = sorted(_cases, key=lambda found: suites.index(found.name.partition(".")[0]))
    known = {*suites, *SUITES_ON_DEMAND, *(found.name for found in ordered)}
    if unknown := sorted(set(names) - known):
        raise LookupError(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [found for found in ordered if not names or {found.name, found.name.partition(".")[0]} & set(names)]
