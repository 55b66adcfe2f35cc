"""Contexts: names for brokers, kept in $XDG_CONFIG_HOME/goqueue/config.toml (or ~/.config). The file:

current = "local"

[contexts.local]
address = "127.0.0.1:9000"
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from goqueue.client.client import parse_address
from goqueue.errors import ConfigurationError, InvalidRequestError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(slots=True)
class Contexts:
    addresses: dict[str, str] = field(default_factory=dict)
    current: str | None = None

    @staticmethod
    def path() -> Path:
        home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
        return Path(home) / "goqueue" / "config.toml"

    @classmethod
    def load(cls) -> Contexts:
        """What the file holds; nothing when there is none."""
        path = cls.path()
        try:
            document = tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read: {error}; correct or remove it") from None
        try:
            addresses = {str(name): str(context["address"]) for name, context in document.get("contexts", {}).items()}
        except (AttributeError, KeyError, TypeError):
            raise ConfigurationError(f"{path}: a context is a table with an address; correct or remove it") from None
        current = document.get("current")
        return cls(addresses, current if isinstance(current, str) else None)

    def set(self, name: str, address: str) -> None:
        """Add or change a context; the first one becomes the current one."""
        if not _NAME.fullmatch(name):
            raise InvalidRequestError(f"context name {name!r} is not allowed: use 1 to 64 of A-Z a-z 0-9 _ -")
        parse_address(address)
        self.addresses[name] = address
        if self.current is None:
            self.current = name

    def use(self, name: str) -> None:
        self._check(name)
        self.current = name

    def delete(self, name: str) -> None:
        self._check(name)
        del self.addresses[name]
        if self.current == name:
            self.current = None

    def _check(self, name: str) -> None:
        if name not in self.addresses:
            raise InvalidRequestError(
                f"there is no context {name!r}; known: {', '.join(sorted(self.addresses)) or 'none'}"
            )

    def save(self) -> None:
        """Replace the file in one step, so that a crash leaves the old one or the new one."""
        path = self.path()
        lines = [f"current = {json.dumps(self.current)}\n"] if self.current else []
        for name, address in sorted(self.addresses.items()):
            lines.append(f"\n[contexts.{name}]\naddress = {json.dumps(address)}\n")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".config-")
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write("".join(lines))
            os.replace(temporary, path)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
