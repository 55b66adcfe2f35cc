"""Any order of joins, leaves, revocations, timeouts, topic changes and commits keeps a group sound."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from goqueue.errors import FencedError
from goqueue.groups import AssignorName, GroupPhase, Place, Protocol, TopicShape, flatten
from tests.groups.driver import Driver

TOPICS = ("t", "u", "v")


class GroupMachineStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.protocol: Protocol | None = None
        self.assignor: AssignorName | None = None
        self.generations = [0]
        self.incarnation = 0
        # What the members were given in one generation: nobody else may be given it in the same.
        self.owner_in: dict[tuple[int, Place], str] = {}
        self.committed: dict[Place, int] = {}

    @property
    def members(self) -> list[str]:
        group = self.driver.machine.groups.get("g")
        return [] if group is None else [member.id for member in group.members]

    @rule(
        topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True),
        protocol=st.sampled_from(Protocol),
        assignor=st.sampled_from(AssignorName),
    )
    def join(self, topics: list[str], protocol: Protocol, assignor: AssignorName) -> None:
        if not self.members:
            self.driver.join(topics=tuple(topics), protocol=protocol, assignor=assignor)
        else:
            self.driver.join(topics=tuple(topics))

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))
    def subscribe_to_others(self, data: st.DataObject, topics: list[str]) -> None:
        self.driver.join(member_id=data.draw(st.sampled_from(self.members)), topics=tuple(topics))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.members), min_size=1, unique=True))
        self.driver.leave(*gone)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def revoke_some(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        asked = flatten(self.driver.member(member).to_revoke)
        if asked:
            self.driver.revoke(member, *data.draw(st.lists(st.sampled_from(asked), min_size=1, unique=True)))

    @precondition(lambda self: self.members and self.driver.state().phase is GroupPhase.REBALANCING)
    @rule()
    def run_out_of_time(self) -> None:
        driver = self.driver
        driver.apply(driver.machine.handle_revoke_timeout("g", driver.shapes, 1)[0])
        assert all(not member.to_revoke for member in driver.state().members)

    @rule(topic=st.sampled_from(TOPICS), grow=st.integers(1, 3), again=st.booleans())
    def change_topic(self, topic: str, grow: int, again: bool) -> None:
        driver = self.driver
        before = driver.shapes.get(topic)
        self.incarnation += 1
        if before is None or again:
            driver.shapes[topic] = TopicShape(f"{self.incarnation:032x}", grow)
        else:
            driver.shapes[topic] = TopicShape(before.topic_id, before.partitions + grow)
        self._noticed(topic)

    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.driver.shapes.pop(topic, None)
        self._noticed(topic)

    def _noticed(self, topic: str) -> None:
        driver = self.driver
        if "g" in driver.machine.groups:
            driver.apply(driver.machine.handle_topics("g", driver.shapes, 1)[0])
        shape = driver.shapes.get(topic)
        driver.apply(driver.machine.handle_topic_gone(topic, None if shape is None else bytes.fromhex(shape.topic_id)))
        self.committed = {place: n for place, n in self.committed.items() if place in self.stored}

    @property
    def stored(self) -> dict[Place, int]:
        group = self.driver.machine.groups.get("g")
        return {} if group is None else {place: committed.offset for place, committed in group.offsets.items()}

    @precondition(lambda self: self.members)
    @rule(data=st.data(), behind=st.integers(0, 1))
    def commit(self, data: st.DataObject, behind: int) -> None:
        driver = self.driver
        member = data.draw(st.sampled_from(self.members))
        topic = data.draw(st.sampled_from(sorted(driver.state().topics) or ["t"]))
        if topic not in driver.shapes:
            return
        place = topic, data.draw(st.integers(0, driver.shapes[topic].partitions - 1))
        allowed = behind == 0 and place in flatten(driver.member(member).owned)
        offset = self.committed.get(place, 0) + 1
        try:
            driver.commit(member, driver.state().generation - behind, {place: offset})
        except FencedError:
            assert not allowed
        else:
            assert allowed
            self.committed[place] = offset

    @invariant()
    def generations_only_grow_and_the_state_is_sound(self) -> None:
        self.driver.machine.check_invariants()
        group = self.driver.machine.groups.get("g")
        if group is not None and group.state is not None:
            assert group.state.generation >= self.generations[-1]
            self.generations.append(group.state.generation)

    @invariant()
    def nobody_is_told_to_read_what_another_was_told_to_read_in_the_same_generation(self) -> None:
        group = self.driver.machine.groups.get("g")
        for member in () if group is None else group.members:
            assert group is not None
            assert group.state is not None
            for place in flatten(member.to_read):
                assert self.owner_in.setdefault((group.state.generation, place), member.id) == member.id

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        assert self.stored == self.committed

    def teardown(self) -> None:
        driver = self.driver
        assert driver.restarted().groups == driver.machine.groups
        if self.members:
            driver.settle()
            state = driver.state()
            assert state.phase is GroupPhase.STABLE, "giving up what was asked for always ends a rebalance"
            wanted = {name for member in state.members for name in member.topics}
            places = {(t, p) for t in wanted & set(driver.shapes) for p in range(driver.shapes[t].partitions)}
            assert set(state.owners()) == places, "nothing is left without an owner"
            same = len({frozenset(member.topics) for member in state.members}) == 1
            if state.assignor is not AssignorName.RANGE and same:
                loads = [len(flatten(member.owned)) for member in state.members]
                assert max(loads) - min(loads) <= 1


TestGroupMachineStates = GroupMachineStates.TestCase
TestGroupMachineStates.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
