"""The names of a simulated disk: a tree of directories whose changes are pending until a directory is synced.

A change of names (create, remove, rename) is one operation over one or two entries. Operations that touch the same
entry reach the platter in order, as every journal guarantees; all others survive a crash independently. A rename is
atomic even between two directories. Moving or removing a directory needs everything before it, so that no crash can
close a cycle or take away a directory that a file had already left.
"""

from __future__ import annotations

import copy
import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass

from goqueue.testing.disk_faults import disk_error
from goqueue.testing.sim_inode import Inode


class Directory:
    """One directory: the entries a process sees, and those the platter holds."""

    __slots__ = ("durable", "number", "visible")

    def __init__(self, number: int) -> None:
        self.number = number  # identifies the directory in entry keys, also across snapshots
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Directory | Inode


@dataclass(frozen=True, slots=True)
class EntryChange:
    directory: Directory
    name: str
    node: Node | None  # None removes the entry

    @property
    def key(self) -> tuple[int, str]:
        return (self.directory.number, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOperation:
    changes: tuple[EntryChange, ...]
    needs_all_before: bool = False

    def touches(self, directory: Directory) -> bool:
        return any(change.directory is directory for change in self.changes)

    def keys(self) -> list[tuple[int, str]]:
        """What must stay in order: the entries; and a new directory before what is made in it or moved into it, lest
        a file leave its durable place for one that is gone. A plain new file may well go down with its directory."""
        keys = [change.key for change in self.changes]
        for change in self.changes:
            if isinstance(change.node, Directory):
                keys += [(change.node.number, ""), (change.directory.number, "")]
            elif len({c.directory.number for c in self.changes}) > 1:
                keys.append((change.directory.number, ""))
        return keys

    def make_durable(self) -> None:
        for change in self.changes:
            if change.node is None:
                change.directory.durable.pop(change.name, None)
            else:
                change.directory.durable[change.name] = change.node


class Tree:
    """All names. Paths are split at slashes; absolute and relative ones mean the same."""

    __slots__ = ("_directory_count", "pending", "root")

    def __init__(self) -> None:
        self._directory_count = 0
        self.pending: list[EntryOperation] = []
        self.root = self.new_directory()

    def new_directory(self) -> Directory:
        self._directory_count += 1
        return Directory(self._directory_count)

    # -- looking up ---------------------------------------------------------------------------------------------

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _split(path):
            if isinstance(node, Inode):
                raise disk_error(errno.ENOTDIR, path)
            if node is None:
                return None
            node = node.visible.get(name)
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise disk_error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Inode):
            raise disk_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds, or would hold, the last name of `path`."""
        names = _split(path)
        if not names:
            raise disk_error(errno.EBUSY, path)
        return self.directory("/".join(names[:-1])), names[-1]

    def files(self) -> Iterator[Inode]:
        """Every file a process can reach by name, in a repeatable order."""
        stack: list[Node] = [self.root]
        while stack:
            node = stack.pop()
            if isinstance(node, Inode):
                yield node
            else:
                stack.extend(node.visible.values())

    # -- changing -----------------------------------------------------------------------------------------------

    def link(self, path: str, node: Node) -> None:
        directory, name = self.parent(path)
        if name in directory.visible:
            raise disk_error(errno.EEXIST, path)
        directory.visible[name] = node
        self.pending.append(EntryOperation(changes=(EntryChange(directory, name, node),)))

    def unlink(self, path: str) -> None:
        directory, name = self.parent(path)
        node = directory.visible.pop(name)
        change = EntryChange(directory, name, None)
        self.pending.append(EntryOperation(changes=(change,), needs_all_before=isinstance(node, Directory)))

    def rename(self, source: str, target: str) -> Node | None:
        """Returns the node that lost its name to the rename."""
        source_directory, source_name = self.parent(source)
        target_directory, target_name = self.parent(target)
        node = source_directory.visible.get(source_name)
        if node is None:
            raise disk_error(errno.ENOENT, source)
        replaced = target_directory.visible.get(target_name)
        if replaced is node:
            return None
        self._check_replaceable(node, replaced, target)
        if isinstance(node, Directory) and _split(target)[: len(_split(source))] == _split(source):
            raise disk_error(errno.EINVAL, target)
        del source_directory.visible[source_name]
        target_directory.visible[target_name] = node
        changes = (EntryChange(source_directory, source_name, None), EntryChange(target_directory, target_name, node))
        self.pending.append(EntryOperation(changes=changes, needs_all_before=isinstance(node, Directory)))
        return replaced

    def _check_replaceable(self, node: Node, replaced: Node | None, target: str) -> None:
        if isinstance(replaced, Directory):
            if isinstance(node, Inode):
                raise disk_error(errno.EISDIR, target)
            if replaced.visible:
                raise disk_error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, Inode) and isinstance(node, Directory):
            raise disk_error(errno.ENOTDIR, target)

    # -- durability ---------------------------------------------------------------------------------------------

    def sync(self, directory: Directory) -> None:
        """Make the directory's changes durable, and whatever earlier changes they build upon."""
        needed: set[tuple[int, str]] = set()
        everything = False
        chosen: list[EntryOperation] = []
        rest: list[EntryOperation] = []
        for operation in reversed(self.pending):
            if everything or operation.touches(directory) or not needed.isdisjoint(operation.keys()):
                needed.update(operation.keys())
                everything |= operation.needs_all_before
                chosen.append(operation)
            else:
                rest.append(operation)
        for operation in reversed(chosen):
            operation.make_durable()
        self.pending = rest[::-1]

    def crash(self, rng: random.Random) -> None:
        """Keep each pending change or lose it, then see only what is durable."""
        lost: set[tuple[int, str]] = set()
        for operation in self.pending:
            possible = not lost if operation.needs_all_before else lost.isdisjoint(operation.keys())
            if possible and rng.random() < 0.5:
                operation.make_durable()
            else:
                lost.update(operation.keys())
        self.pending = []
        self._forget_visible(self.root)

    def _forget_visible(self, directory: Directory) -> None:
        directory.visible = dict(directory.durable)
        for node in directory.visible.values():
            if isinstance(node, Directory):
                self._forget_visible(node)

    def copy(self) -> Tree:
        return copy.deepcopy(self)


def _split(path: str) -> list[str]:
    names = [name for name in path.split("/") if name and name != "."]
    assert ".." not in names, "paths are composed from validated names"
    return names
