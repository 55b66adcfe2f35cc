"""Names of topics and groups. A name passes here before it may become part of a path."""

from __future__ import annotations

import re

from goqueue.errors import InvalidNameError

NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def validate_name(name: str, *, kind: str = "topic") -> str:
    """Return `name` unchanged, or raise `InvalidNameError` saying what is wrong with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name) if len(str(name)) <= 80 else repr(str(name)[:80]) + "..."
        raise InvalidNameError(
            f"{kind} name {shown} is not allowed: use 1 to {NAME_LENGTH_MAX} of A-Z a-z 0-9 . _ -", kind=kind
        )
    if name in {".", ".."}:
        raise InvalidNameError(f"{kind} name {name!r} is not allowed: it names a directory", kind=kind)
    return name


def is_internal_name(name: str) -> bool:
    """Names starting `__` belong to the broker itself."""
    return name.startswith("__")
