"""The native kernel, the one part of the build that pyproject.toml cannot say. Everything else is declared there."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

RECORD = "src/goqueue/record"

flags = ["-O3"]
link_flags = []
if os.environ.get("GOQUEUE_SANITIZE") == "1":
    # For scripts/fuzz_asan.sh: any bad access or undefined operation ends the process with a report.
    link_flags = ["-fsanitize=address,undefined"]
    flags = [*link_flags, "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-O1", "-g"]

kernel = Extension(
    "goqueue.record._kernel",
    sources=[f"{RECORD}/_kernel.pyx"],
    depends=[f"{RECORD}/crc32c.h"],
    include_dirs=[RECORD],
    extra_compile_args=flags,
    extra_link_args=link_flags,
)

# The generated C goes to build/, so the source tree holds sources only.
setup(ext_modules=cythonize([kernel], language_level=3, build_dir="build/cython"))
