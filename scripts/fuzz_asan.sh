#!/usr/bin/env bash
# Build the kernel with sanitizers into a temporary directory and run the fuzzer against it; arguments go to the fuzzer.
# Needs gcc with its libasan, and a Python (PYTHON=...) with Cython. The installed kernel is not touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
cc=${CC:-gcc}

libasan=$("$cc" -print-file-name=libasan.so)
if [[ $libasan != /* ]]; then
    echo "fuzz-asan: $cc has no libasan.so; install gcc's sanitizer libraries" >&2
    exit 1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The package is copied without its built kernel, and PYTHONPATH comes before an editable install. The compiler is
# called directly: setup.py would write into build/, which another build may be using.
mkdir "$tmp/lib"
cp -R src/goqueue "$tmp/lib/"
find "$tmp/lib" -name '*.so' -delete
record=$tmp/lib/goqueue/record
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
"$python" -m cython -3 "$record/_kernel.pyx" -o "$tmp/_kernel.c"
# Any bad access or undefined operation ends the process with a report.
"$cc" -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -O1 -g -shared -fPIC \
    -I"$record" -I"$include" "$tmp/_kernel.c" -o "$record/_kernel$suffix"

# detect_leaks=0: the interpreter itself leaks at exit. PYTHONMALLOC=malloc: without it Python's own arenas would
# hide an access past the end of an object from the sanitizer.
sanitized() {
    PYTHONPATH="$tmp/lib" PYTHONMALLOC=malloc LD_PRELOAD="$libasan" \
        ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 "$python" "$@"
}

loaded=$(sanitized -c 'import goqueue.record._kernel as kernel; print(kernel.__file__)')
if [[ $loaded != "$tmp"/* ]]; then
    echo "fuzz-asan: loaded $loaded instead of the sanitized kernel" >&2
    exit 1
fi
sanitized -m goqueue.testing.fuzz "$@"
