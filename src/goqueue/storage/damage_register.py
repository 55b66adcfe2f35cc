"""The damage a log knows of: what must not be read, and where reading has to stop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goqueue.storage.damage import Damage


class DamageRegister:
    __slots__ = ("_damages",)

    def __init__(self, damages: Iterable[Damage] = ()) -> None:
        self._damages = sorted(damages)

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._damages)

    def note(self, damages: Iterable[Damage]) -> None:
        """Take new damage into account; what lies inside known damage is no news."""
        for new in damages:
            if not any(old.from_offset <= new.from_offset and new.to_offset <= old.to_offset for old in self._damages):
                self._damages.append(new)
        self._damages.sort()

    def raise_at(self, offset: int) -> None:
        for damage in self._damages:
            if damage.from_offset <= offset < damage.to_offset:
                raise damage.as_error()

    def raise_before(self, offset: int | None) -> None:
        """Raise when anything below `offset` (or anything at all) cannot be read."""
        for damage in self._damages[:1]:
            if offset is None or damage.from_offset < offset:
                raise damage.as_error()

    def readable_end(self, file: str, offset: int, end_position: int) -> int:
        """How far `file` can be read from `offset` on: up to `end_position` or the next damage."""
        for damage in self._damages:
            if damage.file == file and damage.from_offset >= offset:
                end_position = min(end_position, damage.from_position)
        return end_position

    def in_file(self, file: str) -> list[Damage]:
        return [damage for damage in self._damages if damage.file == file]

    def forget_below(self, offset: int) -> None:
        self._damages = [damage for damage in self._damages if damage.to_offset > offset]

    def forget_from(self, offset: int) -> None:
        self._damages = [damage for damage in self._damages if damage.to_offset <= offset]
