"""What only the kernel's disk does: descriptors, full disks, locks between processes."""

from __future__ import annotations

import errno
import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from goqueue.host import OsDisk


def descriptor_count() -> int:
    gc.collect()  # whatever other tests left behind
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def file_bytes_max(limit: int) -> Iterator[None]:
    """A full disk, without one: the kernel cuts a write at the limit and refuses the next."""
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN, "Python ignores it, so the write fails with EFBIG"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "buffers",
    [[b"x" * 1500], [b"x" * 400, b"", b"x" * 700, b"x" * 400], [b"x"] * 1500, [memoryview(b"x" * 1500)]],
    ids=["one", "some", "many", "view"],
)
def test_append_to_a_disk_that_fills_up_reports_how_much_was_written(tmp_path: Path, buffers: list[bytes]) -> None:
    file = OsDisk().create(f"{tmp_path}/a")
    with file_bytes_max(1300):
        assert file.append(buffers) == 1300
        with pytest.raises(OSError, match="too large"):
            file.append(buffers)
    assert file.size() == 1300


def test_append_without_any_room_raises() -> None:
    file = OsDisk().open("/dev/full", writable=True)
    for buffers in ([b"x"], [b"x", b"y"], [b"x"] * 2000):
        with pytest.raises(OSError, match="No space") as caught:
            file.append(buffers)
        assert caught.value.errno == errno.ENOSPC


def test_descriptors_go_with_their_last_user(tmp_path: Path) -> None:
    disk = OsDisk()
    before = descriptor_count()
    file = disk.create(f"{tmp_path}/a")
    file.append([b"abc"])
    file.pwrite(b"x", 0)
    assert descriptor_count() == before + 2
    reader = file
    del file
    assert reader.pread(3, 0) == b"xbc"
    del reader
    assert descriptor_count() == before


def test_failures_leak_no_descriptor(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = disk.lock(f"{tmp_path}/lock", "me")
    before = descriptor_count()
    with pytest.raises(BlockingIOError):
        disk.lock(f"{tmp_path}/lock", "you")
    with pytest.raises(OSError, match="Errno"):
        disk.map(str(tmp_path))
    assert len(disk.map(f"{tmp_path}/lock")) == 2
    assert descriptor_count() == before
    lock.release()


def test_closing_twice_spares_whoever_got_the_number_next(tmp_path: Path) -> None:
    disk = OsDisk()
    first = disk.create(f"{tmp_path}/a")
    first.close()
    second = disk.create(f"{tmp_path}/b")
    first.close()
    assert second.append([b"alive"]) == 5


def test_fileno_is_the_descriptor_that_reads_the_file(tmp_path: Path) -> None:
    file = OsDisk().create(f"{tmp_path}/a")
    file.append([b"abc"])
    assert os.pread(file.fileno(), 3, 0) == b"abc"
    assert not os.get_inheritable(file.fileno())


def test_lock_is_exclusive_between_processes_and_ends_with_its_holder(tmp_path: Path) -> None:
    script = (
        "import sys; from goqueue.host import OsDisk\n"
        "lock = OsDisk().lock(sys.argv[1], 'child'); print('held', flush=True); sys.stdin.read()"
    )
    source = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", script, f"{tmp_path}/lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError):
            OsDisk().lock(f"{tmp_path}/lock", "parent")
        child.kill()
    OsDisk().lock(f"{tmp_path}/lock", "parent").release()
