"""A function in an interpreter of its own, for what a used process cannot show: memory, a cold start, a kill.

`python -m bench.child MODULE FUNCTION JSON` calls it with the JSON object's members and prints what it returns.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.machine import REPOSITORY

_MEMORY_FIELDS = ("Rss", "Private_Clean", "Private_Dirty", "Anonymous")


def start_child(function: Callable[..., object], **arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.child", function.__module__, function.__name__, json.dumps(arguments)]
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )


def run_child(function: Callable[..., object], **arguments: object) -> Any:
    child = start_child(function, **arguments)
    output, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{function.__name__} failed in its child process with {child.returncode}")
    return json.loads(output)


def memory_bytes() -> dict[str, int]:
    """This process's memory. File pages mapped by nobody else count as private although the kernel may drop them;
    `Anonymous` is what it cannot drop."""
    found = {}
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        if name in _MEMORY_FIELDS:
            found[name] = int(rest.split()[0]) << 10
    return found


if __name__ == "__main__":
    module, name, arguments = sys.argv[1:]
    print(json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))))
