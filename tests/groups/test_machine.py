"""The group machine: membership, handover, fencing, offsets; what it refuses it leaves as it was."""

from __future__ import annotations

import pytest

from goqueue.errors import (
    GroupMismatchError,
    GroupNotEmptyError,
    GroupNotFoundError,
    InvalidRequestError,
    LimitExceededError,
    MemberIdInUseError,
    PartitionNotAssignedError,
    StaleGenerationError,
    UnknownMemberError,
)
from goqueue.groups import AssignorName, GroupPhase, MemberPhase, Mode, Protocol, TopicShape
from tests.groups.driver import TOPIC_ID, Driver


def test_the_first_member_owns_everything_at_once() -> None:
    driver = Driver()
    first = driver.join()
    assert driver.member(first).owned == {"t": (0, 1, 2, 3)}
    assert driver.state().phase is GroupPhase.STABLE
    assert driver.state().generation == 1


def test_a_cooperative_join_waits_for_what_others_give_up_and_disturbs_nothing_else() -> None:
    driver = Driver()
    first = driver.join()
    second = driver.join()
    assert driver.state().generation == 2
    assert driver.member(first).phase is MemberPhase.PENDING_REVOKE
    assert driver.member(first).to_read == {"t": (0, 1)}
    assert driver.member(first).to_revoke == {"t": (2, 3)}
    assert driver.member(second).phase is MemberPhase.PENDING_ASSIGN
    assert driver.member(second).owned == {}
    driver.revoke(first, ("t", 2))
    assert driver.member(second).owned == {"t": (2,)}
    driver.revoke(first, ("t", 3))
    assert driver.member(second).owned == {"t": (2, 3)}
    assert driver.state().phase is GroupPhase.STABLE
    assert driver.state().generation == 2


def test_what_is_not_given_up_in_time_is_taken_in_a_new_generation() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.apply(driver.machine.handle_revoke_timeout("g", driver.shapes, driver.now_ms)[0])
    assert driver.state().generation == 3
    assert driver.member(first).owned == {"t": (0, 1)}
    assert driver.member(second).owned == {"t": (2, 3)}
    with pytest.raises(StaleGenerationError):
        driver.commit(first, 2, {("t", 2): 5})


def test_an_eager_join_deals_at_once_and_fences_the_old_generation() -> None:
    driver = Driver()
    first = driver.join(protocol=Protocol.EAGER)
    second = driver.join()
    assert driver.member(first).owned == {"t": (0, 1)}
    assert driver.member(second).owned == {"t": (2, 3)}
    with pytest.raises(StaleGenerationError) as refused:
        driver.commit(first, 1, {("t", 0): 1})
    assert refused.value.context["generation"] == 2
    assert driver.join(member_id=first) == first
    assert driver.state().generation == 2, "a member that comes back changes nothing"


def test_a_leaver_leaves_its_partitions_to_the_others() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.settle()
    driver.leave(first)
    assert driver.member(second).owned == {"t": (0, 1, 2, 3)}
    driver.leave(second)
    assert driver.state().phase is GroupPhase.EMPTY
    driver.join()
    assert driver.state().generation == 5, "generations never begin again"


def test_every_member_of_a_shared_group_has_every_partition() -> None:
    driver = Driver()
    members = [driver.join(mode=Mode.SHARED), driver.join(mode=Mode.SHARED)]
    assert [driver.member(member).owned for member in members] == [{"t": (0, 1, 2, 3)}] * 2
    assert driver.state().phase is GroupPhase.STABLE


def test_members_with_several_topics_get_all_of_them() -> None:
    driver = Driver()
    driver.shapes["u"] = TopicShape("cd" * 16, 2)
    both, one = driver.join(topics=("t", "u")), driver.join(topics=("u",))
    driver.settle()
    assert driver.member(both).owned == {"t": (0, 1, 2, 3)}
    assert driver.member(one).owned == {"u": (0, 1)}


def test_a_topic_that_grows_is_dealt_anew() -> None:
    driver = Driver()
    first = driver.join()
    driver.shapes["t"] = TopicShape(TOPIC_ID, 6)
    driver.apply(driver.machine.handle_topics("g", driver.shapes, 1)[0])
    assert driver.member(first).owned == {"t": (0, 1, 2, 3, 4, 5)}
    assert driver.state().generation == 2
    assert driver.machine.handle_topics("g", driver.shapes, 1)[0] == []


def test_a_topic_created_again_is_another_one() -> None:
    driver = Driver()
    first, second = driver.join(), driver.join()
    driver.commit(first, 2, {("t", 0): 7})
    driver.shapes["t"] = TopicShape("ee" * 16, 1)
    driver.apply(driver.machine.handle_topics("g", driver.shapes, 1)[0])
    owned = [driver.member(first).owned, driver.member(second).owned]
    assert sorted(owned, key=len) == [{}, {"t": (0,)}]
    driver.apply(driver.machine.handle_topic_gone("t", bytes.fromhex("ee" * 16)))
    assert driver.machine.get("g").offsets == {}


def test_offsets_are_committed_by_owners_of_the_current_generation() -> None:
    driver = Driver()
    first = driver.join()
    driver.commit(first, 1, {("t", 0): 5, ("t", 1): 6})
    assert driver.machine.get("g").offsets["t", 1].offset == 6
    second = driver.join()
    driver.commit(first, 2, {("t", 3): 9})  # a last word about what it gives up
    for member, generation, error in (
        (first, 1, StaleGenerationError),
        (first, 3, StaleGenerationError),
        (second, 2, PartitionNotAssignedError),
        ("nobody", 2, UnknownMemberError),
        (None, 0, UnknownMemberError),
    ):
        with pytest.raises(error):
            driver.commit(member, generation, {("t", 0): 1})
    assert driver.machine.get("g").offsets["t", 0].offset == 5


def test_a_group_of_offsets_alone_needs_no_members() -> None:
    driver = Driver()
    driver.commit(None, 0, {("t", 0): 3}, group="monitor")
    assert driver.machine.get("monitor").offsets["t", 0].offset == 3
    assert driver.machine.get("monitor").state is None
    driver.apply(driver.machine.handle_delete("monitor"))
    with pytest.raises(GroupNotFoundError):
        driver.machine.get("monitor")


def test_refusals_have_their_own_codes_and_change_nothing() -> None:
    driver = Driver(members_max=2, groups_max=1)
    first = driver.join(assignor=AssignorName.RANGE)
    second = driver.join()
    before = list(driver.log)
    machine = driver.machine
    with pytest.raises(UnknownMemberError):
        driver.join(member_id="made-up")
    with pytest.raises(MemberIdInUseError):
        driver.join(member_id=first, client_id="another")
    with pytest.raises(GroupMismatchError):
        driver.join(member_id=first, protocol=Protocol.EAGER)
    with pytest.raises(LimitExceededError, match="at most 2 members"):
        driver.join()
    with pytest.raises(LimitExceededError, match="1 groups"):
        driver.join(group="other")
    with pytest.raises(LimitExceededError, match="1 groups"):
        driver.commit(None, 0, {("t", 0): 1}, group="other")
    with pytest.raises(UnknownMemberError):
        driver.leave("made-up")
    with pytest.raises(PartitionNotAssignedError):
        driver.revoke(second, ("t", 0))
    with pytest.raises(InvalidRequestError, match="nobody asked"):
        driver.revoke(first, ("t", 0))
    with pytest.raises(GroupNotEmptyError):
        machine.handle_delete("g")
    with pytest.raises(GroupNotEmptyError):
        machine.handle_reset("g", [], 1)
    assert driver.log == before


def test_abandoned_groups_are_forgotten_after_their_time() -> None:
    driver = Driver()
    member = driver.join()
    driver.now_ms = 5_000
    driver.commit(member, 1, {("t", 0): 3})
    driver.leave(member)
    assert driver.machine.handle_expiry(9_999, 5_000) == []
    driver.apply(driver.machine.handle_expiry(10_000, 5_000))
    assert driver.machine.groups == {}
    assert driver.restarted().groups == {}


def test_a_group_with_members_is_never_forgotten() -> None:
    driver = Driver()
    driver.join()
    assert driver.machine.handle_expiry(1 << 50, 1) == []


def test_a_restart_finds_members_generation_and_offsets_as_they_were() -> None:
    driver = Driver()
    first = driver.join()
    driver.join()
    driver.commit(first, 2, {("t", 0): 3})
    assert driver.restarted().groups == driver.machine.groups
