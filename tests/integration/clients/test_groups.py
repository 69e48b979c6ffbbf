"""Test groups of every library, and of several libraries at once: which member owns which
partitions, and that no record is skipped."""

from __future__ import annotations

import itertools

import pytest

from tests.integration.clients.group import Group
from tests.support.brokers import create_topic

PARTITIONS = 12
ALL = ("confluent", "kafka-python", "aiokafka", "kafkajs", "sarama", "franz", "kcat", "java", "k")
COOPERATIVE = ("confluent", "franz", "java", "k")
STATIC = ("confluent", "sarama", "franz", "java", "k")
BROKER_ASSIGNED = ("confluent", "java", "k")
"""Libraries that support the protocol of KIP-848."""

NAMES = (f"group-{number}" for number in itertools.count())


@pytest.fixture
def group(broker, name, catalogue):
    topic = create_topic(broker.address, name, PARTITIONS)
    with Group(next(NAMES), broker.address, topic, catalogue.directory) as group:
        yield group


def test_all_libraries_share_one_topic(group):
    group.write(PARTITIONS)
    for library in ALL:
        group.join(library)
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    for member in group.members[::2]:
        member.stop()
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()


@pytest.mark.parametrize("library", [library for library in ALL if library != "java"])
def test_members_are_restarted_one_after_the_other_and_nothing_is_passed_over(group, library):
    group.write(PARTITIONS)
    for _ in range(2):
        group.join(library)
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    for member in list(group.members):
        group.read()
        member.stop()
        group.settle(PARTITIONS)
        group.write(PARTITIONS)
        group.join(library)
        group.settle(PARTITIONS)
        group.write(PARTITIONS)
    group.read()


@pytest.mark.parametrize("library", ["confluent", "k"])
def test_what_a_killed_member_owned_goes_to_the_others(group, library):
    killed, _ = (group.join(library, session_timeout_ms=6000) for _ in range(2))
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    killed.kill()
    group.write(PARTITIONS)
    group.settle(PARTITIONS)
    group.read()


@pytest.mark.parametrize("library", STATIC)
def test_a_static_member_comes_back_to_what_it_had_and_the_others_go_on(group, library):
    first = group.join(library, instance="first")
    other = group.join(library, instance="other")
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    had, before = first.owned, len(other.rebalances)
    first.kill()
    again = group.join(library, instance="first")
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    assert again.owned == had
    assert len(other.rebalances) == before


@pytest.mark.parametrize("library", COOPERATIVE)
def test_a_cooperative_rebalance_stops_only_what_moves(group, library):
    first = group.join(library, strategy="cooperative-sticky")
    group.settle(PARTITIONS)
    had = set(first.owned)
    second = group.join(library, strategy="cooperative-sticky")
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    revoked = set().union(*(p for what, p in first.rebalances if what == "revoked"))
    assert revoked == second.owned == had - first.owned


def test_members_of_several_libraries_rebalance_cooperatively(group):
    group.write(PARTITIONS)
    for library in COOPERATIVE:
        group.join(library, strategy="cooperative-sticky")
        group.settle(PARTITIONS)
        group.write(PARTITIONS)
    group.read()


@pytest.mark.parametrize("library", [library for library in BROKER_ASSIGNED if library != "java"])
def test_the_broker_assigns_to_two_of_a_kind(group, library):
    group.write(PARTITIONS)
    first = group.join(library, strategy=None, protocol="consumer")
    group.settle(PARTITIONS)
    group.join(library, strategy=None, protocol="consumer")
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
    assert len(first.owned) == PARTITIONS // 2
    first.stop()
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()


def test_the_broker_assigns_to_several_libraries(group):
    group.write(PARTITIONS)
    for library in BROKER_ASSIGNED:
        group.join(library, strategy=None, protocol="consumer")
    group.settle(PARTITIONS)
    group.write(PARTITIONS)
    group.read()
