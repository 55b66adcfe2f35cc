#!/usr/bin/env bash
# Build the kernel with sanitizers into a temporary directory and run the fuzzer against it; arguments go to the fuzzer.
# Needs gcc with its libasan. The installed kernel is not touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}

libasan=$("${CC:-gcc}" -print-file-name=libasan.so)
if [[ $libasan != /* ]]; then
    echo "fuzz-asan: ${CC:-gcc} has no libasan.so; install gcc's sanitizer libraries" >&2
    exit 1
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# The package is copied without its built kernel, and PYTHONPATH comes before the editable install.
mkdir "$tmp/lib"
cp -R src/goqueue "$tmp/lib/"
find "$tmp/lib" -name '*.so' -delete
GOQUEUE_SANITIZE=1 "$python" setup.py --quiet build_ext --build-lib "$tmp/lib" --build-temp "$tmp/temp"

# detect_leaks=0: the interpreter itself leaks at exit. PYTHONMALLOC=malloc: without it Python's own arenas would
# hide an access past the end of a bytes object from the sanitizer.
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
