"""The coordinator of transactional ids, driven at random: what is kept, decided and fenced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from kserver.config.broker import BrokerConfig
from kserver.coordinator.shard import MAX_BATCH_BYTES, Now
from kserver.errors import ErrorCode, KafkaError
from kserver.metadata import TRANSACTION_VERSION, ClusterMetadata, Features
from kserver.model import TopicPartition
from kserver.txn.events import TransactionChanged
from kserver.txn.requests import (
    NEEDS_ID,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    VerifyPartitions,
)
from kserver.txn.shard import MAX_IDS_PER_BATCH, TransactionShard, WriteMarkers
from kserver.txn.transaction import (
    LAST_EPOCH,
    PREPARED,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)

TIMEOUT_MS = 60_000
CONFIG = BrokerConfig()
SWEEP_MS = CONFIG.transaction_abort_timed_out_transaction_cleanup_interval_ms
REFUSALS = {
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.producer_fenced,
    ErrorCode.concurrent_transactions,
    ErrorCode.invalid_txn_state,
    ErrorCode.invalid_transaction_timeout,
}
FENCED = {ErrorCode.invalid_producer_id_mapping, ErrorCode.producer_fenced}


def image(version):
    return ClusterMetadata("c", features=Features({TRANSACTION_VERSION: version}, 0))


class Coordinator:
    """A shard with the log under it: what the runtime does, with every write committed at once."""

    def __init__(self, version=2):
        self.log: list[tuple[bytes, bytes | None]] = []
        self.effects: list[WriteMarkers] = []
        self.now = Now(1_000, 1_700_000_000_000)
        self.version = version
        self.ids = count(5000)
        self.shard = self._load()

    def _load(self):
        shard = TransactionShard(lambda: CONFIG)
        for record in self.log:
            shard.replay(shard.decode(*record))
        self.carry_out(shard, shard.image_changed(image(self.version), self.now))
        self.carry_out(shard, shard.loaded(self.now))
        return shard

    def carry_out(self, shard, outcome):
        for event in outcome.events:
            record = shard.encode(event)
            assert shard.decode(*record) == event
            self.log.append(record)
            shard.replay(event)
        self.effects += outcome.effects
        return dict(outcome.responses)

    def ask(self, request):
        """What is answered; raises KafkaError.  A producer id is there when one is wanted."""
        ticket = object()
        answer = self.carry_out(self.shard, self.shard.handle(request, ticket, self.now))[ticket]
        if answer is NEEDS_ID:
            return self.ask(replace(request, new_id=next(self.ids)))
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def write_markers(self):
        """The oldest that are to be written, if they are still what is wanted."""
        wanted = self.effects.pop(0)
        self.ask(MarkersWritten(wanted.transactional_id, wanted.producer))
        return wanted

    def pass_time(self, ms):
        until = self.now.ms + ms
        while (at := self.shard.next_deadline_ms) is not None and at <= until:
            self.now = Now(at, self.now.wall_ms + max(at - self.now.ms, 0))
            self.carry_out(self.shard, self.shard.expire(self.now))
        self.now = Now(until, self.now.wall_ms + until - self.now.ms)

    def restart(self):
        before = dict(self.shard.transactions)
        self.effects.clear()
        self.shard = self._load()
        assert self.shard.transactions == before

    def state(self, name):
        return self.shard.transactions[name].state


@dataclass
class Producer:
    """One instance of a program.  Of several with one transactional id all but one are zombies."""

    name: str
    identity: ProducerIdAndEpoch
    version: int
    added: frozenset[TopicPartition] = frozenset()
    ending: bool | None = None
    """What it asked for and was not told of."""


names = st.sampled_from(["a", "b"])
partitions = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(0, 1)),
    min_size=1,
    max_size=3,
)


class Transactions(RuleBasedStateMachine):
    producers = Bundle("producers")

    @initialize(
        version=st.integers(0, 2),
        old=st.dictionaries(names, st.integers(LAST_EPOCH - 3, LAST_EPOCH)),
    )
    def begin(self, version, old):
        self.coordinator = Coordinator(version)
        self.given: dict[int, int] = {}
        """The highest epoch that a producer was given, by producer id."""
        self.owner: dict[str, Producer] = {}
        self.decided: dict[str, bool] = {}
        """How the transaction that is being ended ends."""
        for producer_id, (name, epoch) in enumerate(sorted(old.items()), 100):
            new = Transaction(name, producer_id, epoch, TIMEOUT_MS, 1_700_000_000_000)
            shard = self.coordinator.shard
            self.coordinator.log.append(shard.encode(TransactionChanged(new)))
            self.given[producer_id] = epoch
        self.coordinator.shard = self.coordinator._load()

    def _given(self, producer, identity, *, is_new):
        """A producer goes on with this identity."""
        highest = self.given.get(identity.producer_id, -1)
        assert identity.epoch > highest if is_new else identity.epoch >= highest
        assert identity.epoch <= LAST_EPOCH
        self.given[identity.producer_id] = identity.epoch
        producer.identity = identity
        self.owner[producer.name] = producer

    @rule(target=producers, name=names, version=st.sampled_from([0, 2]))
    def init(self, name, version):
        try:
            identity = self.coordinator.ask(InitProducerId(name, TIMEOUT_MS))
        except KafkaError as error:
            self._is_retried_while_aborted(name, error)
            return multiple()
        producer = Producer(name, identity, version)
        self._given(producer, identity, is_new=True)
        assert self.coordinator.state(name) is TransactionState.EMPTY
        return producer

    def _is_retried_while_aborted(self, name, error):
        assert error.code is ErrorCode.concurrent_transactions
        self._aborted(name)

    def _aborted(self, name):
        """The coordinator does so when a transaction is ongoing."""
        self.decided.setdefault(name, False)

    @rule(producer=producers)
    def go_on(self, producer):
        """After an error, as KIP-360 has it."""
        try:
            request = InitProducerId(producer.name, TIMEOUT_MS, producer.identity)
            identity = self.coordinator.ask(request)
        except KafkaError as error:
            if error.code not in FENCED:
                self._is_retried_while_aborted(producer.name, error)
            return
        assert self.owner.get(producer.name, producer) is producer
        self._given(producer, identity, is_new=identity != producer.identity)
        producer.added, producer.ending = frozenset(), None

    @rule(producer=producers, added=partitions)
    def add(self, producer, added):
        if producer.ending is not None:
            return  # it asks for that end again first
        request = AddPartitions(producer.name, producer.identity, added, producer.version)
        try:
            self.coordinator.ask(request)
        except KafkaError as error:
            self._is_refused_rightly(producer, error)
            return
        self._is_owner(producer)
        producer.added |= added
        assert self.coordinator.shard.transactions[producer.name].partitions == producer.added

    @rule(producer=producers, asked=partitions)
    def verify(self, producer, asked):
        if producer.ending is not None:
            return
        try:
            codes = self.coordinator.ask(VerifyPartitions(producer.name, producer.identity, asked))
        except KafkaError as error:
            self._is_refused_rightly(producer, error)
            return
        self._is_owner(producer)
        known = {p for p, code in codes.items() if code is ErrorCode.none}
        assert codes.keys() == asked
        assert known == asked & producer.added

    @rule(producer=producers, commit=st.booleans(), is_heard=st.booleans())
    def end(self, producer, commit, is_heard):
        request = EndTransaction(producer.name, producer.identity, commit, producer.version)
        before = self.coordinator.shard.transactions.get(producer.name)
        try:
            identity = self.coordinator.ask(request)
        except KafkaError as error:
            self._is_refused_rightly(producer, error)
            return
        after = self.coordinator.shard.transactions[producer.name]
        self._is_owner(producer)
        if after == before:
            assert after.is_commit is commit, "answered as if it had ended the other way"
        elif before is not None and before.state is not TransactionState.ONGOING:
            assert after.state is not TransactionState.PREPARE_COMMIT, "nothing was there to commit"
        if after.state in PREPARED and (before is None or before.state not in PREPARED):
            wanted = self.coordinator.effects[-1]
            assert (wanted.commit, wanted.partitions) == (commit, producer.added)
            if producer.version == 2:
                assert wanted.producer.epoch > self.given[wanted.producer.producer_id]
            else:
                assert wanted.producer == producer.identity
            self.decided[producer.name] = commit
        if not is_heard:
            producer.ending = commit
            return
        if producer.version == 2:
            self._given(producer, identity, is_new=False)
        else:
            assert identity == producer.identity
        producer.added, producer.ending = frozenset(), None

    def _is_owner(self, producer):
        assert self.owner.get(producer.name) is producer, "a zombie was served"

    def _is_refused_rightly(self, producer, error):
        assert error.code in REFUSALS
        found = self.coordinator.shard.transactions.get(producer.name)
        if error.code in FENCED:
            # Another took over, or the coordinator aborted, or forgot; or it has not heard of the
            # epoch that the end of its transaction gave it.
            is_owner = self.owner.get(producer.name) is producer
            assert not is_owner or found is None or found.identity != producer.identity

    @precondition(lambda self: self.coordinator.effects)
    @rule()
    def write_markers(self):
        wanted = self.coordinator.effects[0]
        now = self.coordinator.shard.transactions.get(wanted.transactional_id)
        is_wanted = now is not None and now.state in PREPARED and now.identity == wanted.producer
        self.coordinator.write_markers()
        if is_wanted:
            name = wanted.transactional_id
            assert wanted.commit is self.decided.pop(name), "torn: decided otherwise before"
            done = (
                TransactionState.COMPLETE_COMMIT
                if wanted.commit
                else TransactionState.COMPLETE_ABORT
            )
            assert self.coordinator.state(name) is done

    @rule(ms=st.sampled_from([10, 10_000, TIMEOUT_MS + 20_000, 8 * 24 * 3_600_000]))
    def pass_time(self, ms):
        before = dict(self.coordinator.shard.transactions)
        self.coordinator.pass_time(ms)
        for name, one in before.items():
            now = self.coordinator.shard.transactions.get(name)
            if now is None:
                assert one.state not in PREPARED
                assert one.state is not TransactionState.ONGOING
                self.owner.pop(name, None)
            elif now.state is TransactionState.ONGOING:
                assert self.coordinator.now.wall_ms <= now.started_ms + TIMEOUT_MS + SWEEP_MS
            elif now.state is not one.state:
                assert (one.state, now.state) == (
                    TransactionState.ONGOING,
                    TransactionState.PREPARE_ABORT,
                )
                assert one.started_ms + TIMEOUT_MS < self.coordinator.now.wall_ms
                self._aborted(name)

    @rule(version=st.integers(0, 2))
    def finalize(self, version):
        self.coordinator.version = version
        shard = self.coordinator.shard
        self.coordinator.carry_out(shard, shard.image_changed(image(version), self.coordinator.now))

    @rule()
    def restart(self):
        self.coordinator.restart()

    @invariant()
    def kept_state_holds(self):
        shard = self.coordinator.shard
        shard.check()
        for name, one in shard.transactions.items():
            assert (one.state in PREPARED) == (name in self.decided)
            if one.state in PREPARED:
                assert one.is_commit is self.decided[name], "torn: decided otherwise before"
                mine = [e for e in self.coordinator.effects if e.transactional_id == name]
                assert mine, "nobody writes its markers"
                assert mine[-1].producer == one.identity
                assert mine[-1].partitions == one.partitions


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


PARTITION = frozenset({TopicPartition("t", 0)})


def begun(coordinator, name, version=2):
    identity = coordinator.ask(InitProducerId(name, TIMEOUT_MS))
    coordinator.ask(AddPartitions(name, identity, PARTITION, version))
    return identity


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_end_asked_for_again_is_answered_the_same_and_the_other_one_refused(version, commit):
    coordinator = Coordinator()
    identity = begun(coordinator, "a", version)
    asked = EndTransaction("a", identity, commit, version)
    first = coordinator.ask(asked)
    with pytest.raises(KafkaError) as refused:
        coordinator.ask(asked)
    assert refused.value.code is ErrorCode.concurrent_transactions
    coordinator.write_markers()
    assert coordinator.ask(asked) == first
    with pytest.raises(KafkaError) as refused:
        coordinator.ask(replace(asked, commit=not commit))
    assert refused.value.code is ErrorCode.invalid_txn_state


@pytest.mark.parametrize("ends", [True, False], ids=["by its owner", "by the coordinator"])
def test_an_end_that_gave_no_epoch_answers_no_zombie(ends):
    """Else it would have the epoch of the owner, and could end the owner's next transaction."""
    coordinator = Coordinator()
    zombie = coordinator.ask(InitProducerId("a", TIMEOUT_MS))
    owner = begun(coordinator, "a", version=0)
    if ends:
        coordinator.ask(EndTransaction("a", owner, False, 0))
    else:
        zombie = owner
        coordinator.version = 0
        coordinator.restart()
        coordinator.pass_time(TIMEOUT_MS + 2 * SWEEP_MS)
    coordinator.write_markers()
    with pytest.raises(KafkaError) as refused:
        coordinator.ask(EndTransaction("a", zombie, False, 2))
    assert refused.value.code is ErrorCode.producer_fenced


def test_the_end_of_the_last_epoch_asked_for_again_is_answered_with_the_new_producer_id():
    coordinator = Coordinator()
    last = TransactionChanged(Transaction("a", 7, LAST_EPOCH, TIMEOUT_MS, 0))
    coordinator.log.append(coordinator.shard.encode(last))
    coordinator.shard = coordinator._load()
    identity = ProducerIdAndEpoch(7, LAST_EPOCH)
    coordinator.ask(AddPartitions("a", identity, PARTITION, 2))
    asked = EndTransaction("a", identity, True, 2)
    first = coordinator.ask(asked)
    assert first == ProducerIdAndEpoch(5000, 0)
    assert coordinator.write_markers().producer == ProducerIdAndEpoch(7, LAST_EPOCH + 1)
    coordinator.restart()
    assert coordinator.ask(asked) == first


def test_however_long_their_names_what_is_forgotten_at_once_fits_a_batch():
    coordinator = Coordinator()
    names = [f"{number}".ljust(30_000, "x") for number in range(40)]
    for name in names:
        begun(coordinator, name)
    written = len(coordinator.log)
    coordinator.now = Now(coordinator.now.ms + SWEEP_MS, coordinator.now.wall_ms + 2 * TIMEOUT_MS)
    outcome = coordinator.shard.expire(coordinator.now)
    records = [coordinator.shard.encode(event) for event in outcome.events]
    assert 1 < sum(len(key) + len(value) for key, value in records) <= MAX_BATCH_BYTES
    coordinator.carry_out(coordinator.shard, outcome)
    coordinator.pass_time(0)
    assert len(coordinator.log) == written + len(names)
    assert len(coordinator.effects) == len(names)


@pytest.mark.parametrize("version", [0, 2])
def test_the_epoch_after_the_last_is_nobodys(version):
    coordinator = Coordinator(version)
    last = TransactionChanged(Transaction("a", 7, LAST_EPOCH, TIMEOUT_MS, 0))
    coordinator.log.append(coordinator.shard.encode(last))
    coordinator.shard = coordinator._load()
    coordinator.ask(AddPartitions("a", ProducerIdAndEpoch(7, LAST_EPOCH), PARTITION, version))
    coordinator.pass_time(TIMEOUT_MS + 2 * SWEEP_MS)
    after = coordinator.write_markers().producer
    assert after == ProducerIdAndEpoch(7, LAST_EPOCH + 1)
    for request in (
        AddPartitions("a", after, PARTITION, version),
        EndTransaction("a", after, False, 2),
        EndTransaction("a", ProducerIdAndEpoch(7, LAST_EPOCH), False, 2),
    ):
        with pytest.raises(KafkaError) as refused:
            coordinator.ask(request)
        assert refused.value.code is ErrorCode.producer_fenced


@pytest.mark.parametrize("by", [-1, 1])
def test_an_epoch_that_is_not_the_last_given_is_fenced(by):
    coordinator = Coordinator()
    coordinator.ask(InitProducerId("a", TIMEOUT_MS))
    identity = begun(coordinator, "a")
    other = ProducerIdAndEpoch(identity.producer_id, identity.epoch + by)
    for request in (
        AddPartitions("a", other, PARTITION, 2),
        EndTransaction("a", other, True, 2),
    ):
        with pytest.raises(KafkaError) as refused:
            coordinator.ask(request)
        assert refused.value.code is ErrorCode.producer_fenced
    assert coordinator.state("a") is TransactionState.ONGOING


def test_a_marker_that_some_client_wrote_to_the_coordinators_log_is_passed_over():
    coordinator = Coordinator()
    identity = begun(coordinator, "a")
    coordinator.shard.replay_end(identity.producer_id, True)
    assert coordinator.state("a") is TransactionState.ONGOING


def test_markers_of_the_transaction_before_end_no_other():
    """They are told once more where a coordinator was loaded anew meanwhile."""
    coordinator = Coordinator()
    first = begun(coordinator, "a")
    second = coordinator.ask(EndTransaction("a", first, True, 2))
    written = coordinator.write_markers()
    coordinator.ask(AddPartitions("a", second, PARTITION, 2))
    coordinator.ask(EndTransaction("a", second, True, 2))
    coordinator.ask(MarkersWritten("a", written.producer))
    assert coordinator.state("a") is TransactionState.PREPARE_COMMIT
    coordinator.write_markers()
    assert coordinator.state("a") is TransactionState.COMPLETE_COMMIT


def test_however_many_time_out_or_are_forgotten_at_once_they_go_in_parts():
    coordinator = Coordinator()
    names = [f"n{number}" for number in range(2 * MAX_IDS_PER_BATCH + 1)]
    for name in names:
        begun(coordinator, name)
    coordinator.pass_time(TIMEOUT_MS + 2 * SWEEP_MS)
    assert len(coordinator.effects) == len(names)
    while coordinator.effects:
        coordinator.write_markers()
    written = len(coordinator.log)
    coordinator.pass_time(CONFIG.transactional_id_expiration_ms + 2 * 3_600_000)
    assert coordinator.shard.transactions == {}
    assert len(coordinator.log) == written + len(names)
    assert coordinator.shard.next_deadline_ms is None
