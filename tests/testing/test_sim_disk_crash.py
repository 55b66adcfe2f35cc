"""What a power cut does to the simulated disk, and what it must never do."""

from __future__ import annotations

import errno
import random

import pytest

from goqueue.host import File
from goqueue.testing import SimDisk

SEEDS = range(300)
SECTOR = 512


def new_disk(seed: int, *, garbage_probability: float = 0.25) -> SimDisk:
    disk = SimDisk(random.Random(seed), garbage_probability=garbage_probability)
    disk.make_directory("/data")
    return disk


def durable_file(disk: SimDisk, path: str, data: bytes = b"") -> File:
    file = disk.create(path)
    if data:
        file.append([data])
    file.sync()
    disk.sync_directory(path.rpartition("/")[0])
    return file


def content(disk: SimDisk, path: str) -> bytes:
    return bytes(disk.map(path))


def test_synced_bytes_under_a_synced_name_survive_every_crash() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        rng = random.Random(seed)
        file = durable_file(disk, "/data/log")
        synced = b""
        for _ in range(rng.randrange(1, 8)):
            file.append([rng.randbytes(rng.randrange(1, 3000))])
            if rng.random() < 0.5:
                file.sync()
                synced = file.pread(file.size(), 0)
        disk.crash()
        assert content(disk, "/data/log").startswith(synced), f"seed {seed}"
        disk.check_invariants()


def test_a_crash_invents_nothing_but_zeros_when_garbage_is_off() -> None:
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=0)
        file = durable_file(disk, "/data/log")
        written = b""
        for number in range(1, 6):
            chunk = bytes([number]) * 700
            file.append([chunk])
            written += chunk
        disk.crash()
        after = content(disk, "/data/log")
        assert len(after) <= len(written)
        assert all(byte in (0, written[at]) for at, byte in enumerate(after)), f"seed {seed}"


def test_unsynced_appends_are_kept_lost_torn_and_reordered() -> None:
    first, second = b"\1" * SECTOR * 2, b"\2" * SECTOR * 2
    outcomes = set()
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=0)
        file = durable_file(disk, "/data/log")
        file.append([first])
        file.append([second])
        disk.crash()
        outcomes.add(content(disk, "/data/log"))
    zeros = bytes(SECTOR * 2)
    assert {b"", first, first + second} <= outcomes, "all, none, or the first"
    assert zeros + second in outcomes, "the second without the first"
    assert zeros + zeros in outcomes, "the length without the bytes"
    assert first + second[:SECTOR] in outcomes, "a torn write"
    assert first + zeros[:SECTOR] + second[:SECTOR] in outcomes, "a write torn at its start"


def test_tears_follow_the_sectors_of_the_file_not_of_the_write() -> None:
    torn_at = set()
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=0)
        file = durable_file(disk, "/data/log", b"s" * 100)
        file.append([b"u" * 2000])
        disk.crash()
        after = content(disk, "/data/log")
        assert after[:100] == b"s" * 100
        torn_at |= {at for at in range(101, len(after)) if (after[at] == 0) != (after[at - 1] == 0)}
    assert torn_at == {512, 1024, 1536, 2048}


def test_lost_bytes_inside_the_file_may_read_as_garbage() -> None:
    seen_garbage = False
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=1)
        file = durable_file(disk, "/data/log")
        file.append([b"\1" * 1000])
        disk.crash()
        after = content(disk, "/data/log")
        seen_garbage |= any(byte not in (0, 1) for byte in after)
    assert seen_garbage


def test_an_unsynced_truncate_is_kept_or_lost() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/log", b"abcdef").truncate(2)
        disk.crash()
        outcomes.add(content(disk, "/data/log"))
    assert outcomes == {b"ab", b"abcdef"}


def test_an_unsynced_overwrite_leaves_the_old_bytes_or_the_new() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/log", b"abcdef").pwrite(b"XY", 2)
        disk.crash()
        outcomes.add(content(disk, "/data/log"))
    assert outcomes == {b"abcdef", b"abXYef"}


def test_syncing_a_file_does_not_make_its_name_durable() -> None:
    survivals = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        file = disk.create("/data/new")
        file.append([b"abc"])
        file.sync()
        disk.crash()
        survivals.add(disk.exists("/data/new"))
        if disk.exists("/data/new"):
            assert content(disk, "/data/new") == b"abc"
        disk.check_invariants()
    assert survivals == {True, False}


def test_syncing_a_name_does_not_make_its_bytes_durable() -> None:
    contents = set()
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=0)
        disk.create("/data/new").append([b"abc"])
        disk.sync_directory("/data")
        disk.crash()
        contents.add(content(disk, "/data/new"))
    assert contents == {b"", b"abc", b"\0\0\0"}


def test_syncing_one_directory_leaves_the_others_pending() -> None:
    survivals = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/x")
        disk.make_directory("/data/y")
        disk.create("/data/x/a")
        disk.create("/data/y/b")
        disk.sync_directory("/data/x")
        disk.crash()
        assert disk.exists("/data/x/a")
        survivals.add(disk.exists("/data/y/b"))
    assert survivals == {True, False}


def test_make_directory_is_durable_at_every_level_when_it_returns() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/a/b/c")
        disk.crash()
        assert disk.list("/data/a/b") == ["c"]


def test_an_unsynced_remove_is_kept_or_undone_with_its_bytes() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/a", b"abc")
        disk.remove("/data/a")
        disk.check_invariants()
        disk.crash()
        disk.check_invariants()
        outcomes.add(content(disk, "/data/a") if disk.exists("/data/a") else None)
    assert outcomes == {b"abc", None}


def test_a_rename_over_a_file_leaves_the_old_or_the_new_and_never_neither() -> None:
    outcomes = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/state", b"old")
        file = disk.create("/data/state.tmp")
        file.append([b"new"])
        file.sync()
        disk.rename("/data/state.tmp", "/data/state")
        disk.crash()
        disk.check_invariants()
        outcomes.add((tuple(disk.list("/data")), content(disk, "/data/state")))
    assert outcomes == {(("state",), b"new"), (("state",), b"old"), (("state", "state.tmp"), b"old")}


def test_a_lost_rename_never_loses_a_durable_file_whose_name_was_taken_again() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/log", b"old")
        disk.rename("/data/log", "/data/log.1")
        disk.create("/data/log")
        disk.crash()
        assert b"old" in [content(disk, f"/data/{name}") for name in disk.list("/data")], f"seed {seed}"


@pytest.mark.parametrize("synced", ["source", "target", "none"])
def test_a_rename_between_directories_is_atomic(synced: str) -> None:
    places = set()
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/source")
        disk.make_directory("/data/target")
        durable_file(disk, "/data/source/a", b"abc")
        disk.rename("/data/source/a", "/data/target/a")
        if synced != "none":
            disk.sync_directory(f"/data/{synced}")
        disk.crash()
        found = [name for name in ("source", "target") if disk.exists(f"/data/{name}/a")]
        assert len(found) == 1, f"seed {seed}"
        assert content(disk, f"/data/{found[0]}/a") == b"abc"
        places.add(found[0])
    assert places == ({"source", "target"} if synced == "none" else {"target"})


def test_a_file_that_left_a_removed_directory_is_never_lost() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/source")
        durable_file(disk, "/data/source/a", b"abc")
        disk.rename("/data/source/a", "/data/a")
        disk.remove_directory("/data/source")
        disk.crash()
        assert disk.exists("/data/a") or disk.exists("/data/source/a"), f"seed {seed}"


@pytest.mark.parametrize("sync", [True, False])
def test_moving_directories_never_closes_a_cycle(sync: bool) -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/a/x/b/c")
        disk.make_directory("/data/d")
        durable_file(disk, "/data/a/x/b/c/file", b"abc")
        disk.rename("/data/a/x/b", "/data/d/b")
        disk.rename("/data/a", "/data/d/b/c/a")
        if sync:
            disk.sync_directory("/data/d/b/c")
        disk.crash()
        assert disk.exists("/data/a/x/b/c/file") or disk.exists("/data/d/b/c/file"), f"seed {seed}"
        assert not sync or disk.exists("/data/d/b/c/a"), f"seed {seed}"


def test_syncing_the_target_of_a_rename_leaves_nothing_at_its_source() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.make_directory("/data/source")
        disk.make_directory("/data/target")
        disk.create("/data/source/a")
        disk.rename("/data/source/a", "/data/target/a")
        disk.sync_directory("/data/target")
        disk.crash()
        assert (disk.list("/data/source"), disk.list("/data/target")) == ([], ["a"]), f"seed {seed}"


@pytest.mark.parametrize("sync", [True, False])
def test_a_file_moved_into_a_directory_that_is_not_durable_is_never_lost(sync: bool) -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        durable_file(disk, "/data/file", b"abc")
        disk.fail_next("sync_directory", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.make_directory("/data/new")
        disk.rename("/data/file", "/data/new/file")
        if sync:
            disk.sync_directory("/data/new")
        disk.crash()
        assert disk.exists("/data/new/file") or (disk.exists("/data/file") and not sync), f"seed {seed}"


def test_random_name_changes_always_leave_a_tree_with_every_untouched_file() -> None:
    for seed in SEEDS:
        rng = random.Random(seed)
        disk = new_disk(seed)
        for name in ("a", "b", "c"):
            disk.make_directory(f"/data/{name}")
        durable_file(disk, "/data/a/untouched", b"here")
        for _ in range(30):
            change_names_at_random(disk, rng)
        disk.crash()
        disk.check_invariants()
        assert "here" in every_content(disk, "/data"), f"seed {seed}"


def change_names_at_random(disk: SimDisk, rng: random.Random) -> None:
    directories = every_directory(disk, "/data")
    here, there = rng.choice(directories), rng.choice(directories)
    name, other = rng.choice("wxyz"), rng.choice("wxyz")
    try:
        match rng.randrange(6):
            case 0:
                disk.create(f"{here}/{name}")
            case 1:
                disk.make_directory(f"{here}/d{name}")
            case 2:
                disk.rename(f"{here}/{name}", f"{there}/{other}")
            case 3:
                disk.rename(here, f"{there}/d{other}")
            case 4:
                disk.remove(f"{here}/{name}")
            case 5:
                disk.sync_directory(here)
    except OSError:
        pass  # A name that does not fit the tree is refused; the next one may fit.


def every_directory(disk: SimDisk, path: str) -> list[str]:
    below = [f"{path}/{name}" for name in disk.list(path) if name[0] == "d" or name in ("a", "b", "c")]
    return [path, *(each for child in below for each in every_directory(disk, child))]


def every_content(disk: SimDisk, path: str) -> list[str]:
    return [
        content(disk, f"{directory}/{name}").decode()
        for directory in every_directory(disk, path)
        for name in disk.list(directory)
        if name[0] != "d" and name not in ("a", "b", "c")
    ]


def test_a_crash_makes_every_handle_stale_and_frees_locks() -> None:
    disk = new_disk(1)
    file = durable_file(disk, "/data/a", b"abc")
    lock = disk.lock("/data/lock", "me")
    disk.crash()
    for use in (file.size, file.sync, lambda: file.pread(1, 0), lambda: file.append([b"x"]), lambda: file.truncate(0)):
        with pytest.raises(OSError, match="Bad file"):
            use()
    again = disk.lock("/data/lock", "you")
    lock.release()
    with pytest.raises(BlockingIOError):
        disk.lock("/data/lock", "third")
    again.release()


def test_a_killed_process_leaves_everything_it_wrote_but_no_handle_and_no_lock() -> None:
    disk = new_disk(1)
    file = disk.create("/data/a")
    file.append([b"abc"])
    disk.lock("/data/lock", "me")
    disk.kill()
    assert content(disk, "/data/a") == b"abc"
    with pytest.raises(OSError, match="Bad file"):
        file.append([b"x"])
    disk.lock("/data/lock", "you")
    assert disk.durable_bytes("/data/a") == b"", "the page cache is not the platter"
    disk.check_invariants()


def test_unsynced_bytes_can_still_be_lost_after_a_kill_and_saved_by_a_later_sync() -> None:
    survivals = set()
    for seed in SEEDS:
        disk = new_disk(seed, garbage_probability=0)
        durable_file(disk, "/data/a").append([b"abc"])
        disk.kill()
        if seed % 2:
            disk.open("/data/a").sync()
        disk.crash()
        survivals.add((seed % 2, content(disk, "/data/a") == b"abc"))
    assert survivals == {(0, False), (0, True), (1, True)}


def test_what_survived_a_crash_is_durable() -> None:
    for seed in SEEDS:
        disk = new_disk(seed)
        disk.create("/data/a").append([bytes(range(256)) * 10])
        disk.crash()
        before = {name: content(disk, f"/data/{name}") for name in disk.list("/data")}
        disk.crash()
        assert {name: content(disk, f"/data/{name}") for name in disk.list("/data")} == before


def test_the_same_seed_and_calls_give_the_same_disk() -> None:
    def run(seed: int) -> list[tuple[str, bytes]]:
        disk = new_disk(seed)
        for number in range(10):
            file = disk.create(f"/data/{number}")
            file.append([bytes([number]) * 2000])
            file.append([bytes([number + 100]) * 2000])
        disk.crash()
        return [(name, content(disk, f"/data/{name}")) for name in disk.list("/data")]

    assert all(run(seed) == run(seed) for seed in range(20))
    assert len({repr(run(seed)) for seed in range(20)}) > 10
