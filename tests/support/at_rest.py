"""A cluster at rest: every broker's metadata equals the znodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kserver import znodes
from kserver.controller.controller import Controller
from kserver.metadata import ClusterMetadata, TopicInfo
from kserver.world.znode_tree import Znode


def differences(
    nodes: Mapping[str, Znode],
    controllers: Mapping[int, Controller],
    images: Mapping[int, ClusterMetadata],
) -> Iterator[str]:
    """Yield the differences of the controller's context and the brokers' metadata, both by broker,
    from the znodes.
    """
    topics = dict(_topics(nodes))
    registered = {int(name): node.czxid for name, node in _children(nodes, znodes.BROKER_IDS)}
    deleted = {name for name, _ in _children(nodes, znodes.DELETE_TOPICS)}
    held = nodes.get(znodes.CONTROLLER)
    holder = None if held is None else znodes.decode_controller(held.data)

    active = [id_ for id_, controller in controllers.items() if controller.is_active]
    yield from _differ("the active controllers", active, [holder])
    for id_ in active:
        context, queue = controllers[id_].context, controllers[id_].queue
        context.check()
        yield from _differ(f"what waits in the queue of controller {id_}", queue.waiting, 0)
        epochs = {broker.info.id: broker.epoch for broker in context.brokers.values()}
        yield from _differ(f"the brokers that controller {id_} knows", epochs, registered)
        yield from _differ(f"the deletions of controller {id_}", set(context.deletions), deleted)
        known = {topic.name: _whole(topic) for topic in context.topics.values()}
        yield from _differ_by_topic(f"controller {id_}", known, topics)

    told = {name: _told(t) for name, t in topics.items() if name not in deleted}
    for id_, image in images.items():
        yield from _differ(f"the controller that broker {id_} knows", image.controller, holder)
        brokers = set(image.brokers)
        yield from _differ(f"the brokers that broker {id_} knows", brokers, set(registered))
        known = {topic.name: _told(_whole(topic)) for topic in image.topics.values()}
        yield from _differ_by_topic(f"broker {id_}", known, told)


def _differ(what: str, known: object, right: object) -> Iterator[str]:
    if known != right:
        yield f"{what}: {known}, and the znodes say {right}"


def _differ_by_topic(
    whose: str, known: Mapping[str, Any], right: Mapping[str, Any]
) -> Iterator[str]:
    for name in sorted({*known, *right}):
        yield from _differ(f"topic {name} of {whose}", known.get(name), right.get(name))


Whole = tuple[Any, Mapping[int, tuple[Any, ...]]]
"""The id of a topic; by partition, its replicas, ISR, leader, leader epoch, and the fields that
only the controller has.
"""


def _whole(topic: TopicInfo) -> Whole:
    return topic.id, {
        p.partition: (
            p.replicas,
            set(p.isr),
            p.leader,
            p.leader_epoch,
            p.adding,
            p.removing,
            p.partition_epoch,
            p.is_recovering,
        )
        for p in topic.partitions
    }


def _told(topic: Whole) -> Whole:
    return topic[0], {number: state[:4] for number, state in topic[1].items()}


def _topics(nodes: Mapping[str, Znode]) -> Iterator[tuple[str, Whole]]:
    for name, node in _children(nodes, znodes.TOPICS):
        topic = znodes.decode_topic(name, node.data)
        partitions: dict[int, tuple[Any, ...]] = {}
        for number, replicas in topic.replicas.items():
            path = znodes.state_path(name, number)
            if path in nodes:
                state = znodes.decode_state(name, number, nodes[path].data, nodes[path].version)
                partitions[number] = (
                    replicas,
                    set(state.isr),
                    state.leader,
                    state.leader_epoch,
                    topic.adding.get(number, ()),
                    topic.removing.get(number, ()),
                    state.partition_epoch,
                    state.is_recovering,
                )
        yield name, (topic.topic_id, partitions)


def _children(nodes: Mapping[str, Znode], parent: str) -> Iterator[tuple[str, Znode]]:
    for path, node in sorted(nodes.items()):
        above, _, name = path.rpartition("/")
        if above == parent:
            yield name, node
