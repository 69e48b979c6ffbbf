"""What the controller or a broker knows otherwise than the znodes is named."""

from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from uuid import UUID

import pytest

from kserver import znodes
from kserver.controller.context import ControllerContext, live_broker
from kserver.metadata import ClusterMetadata, PartitionInfo, TopicInfo
from kserver.model import Endpoint, LeaderAndIsr
from kserver.world.znode_tree import Znode
from tests.support.at_rest import differences

ENDPOINT = Endpoint("PLAINTEXT", "PLAINTEXT", "b1", 9092)
REGISTERED = znodes.BrokerRegistration(1, (ENDPOINT,), 0)
TOPIC = TopicInfo("t", UUID(int=7), (PartitionInfo(0, 1, 3, (1,), (1,), 2),))


def znode(data=b"", czxid=5, version=0):
    return Znode(data, czxid, czxid, czxid, 0, 0, version)


def known():
    assignment = znodes.TopicAssignment(TOPIC.id, {0: (1,)})
    nodes = {
        "/controller": znode(znodes.encode_controller(1, 0)),
        "/brokers/ids/1": znode(znodes.encode_broker(REGISTERED)),
        "/brokers/topics/t": znode(znodes.encode_topic(assignment)),
        "/brokers/topics/t/partitions/0/state": znode(
            znodes.encode_state(LeaderAndIsr(1, 3, (1,), 4)), version=2
        ),
    }
    context = ControllerContext(epoch=4, brokers={1: live_broker(REGISTERED, 5)})
    context.set_topic(TOPIC)
    controller = SimpleNamespace(is_active=True, context=context, queue=SimpleNamespace(waiting=0))
    brokers = {1: context.brokers[1].info}
    image = ClusterMetadata("c", controller=1, brokers=MappingProxyType(brokers))
    return nodes, {1: controller}, {1: image.with_topics({"t": TOPIC})}


def state(**changes):
    return replace(TOPIC, partitions=(replace(TOPIC.partitions[0], **changes),))


def change_context(**changes):
    return lambda _nodes, controllers, _images: controllers[1].context.set_topic(state(**changes))


def change_image(**changes):
    def change(_nodes, _controllers, images):
        images[1] = images[1].with_topics({"t": state(**changes)})

    return change


def a_topic_more(nodes, _controllers, _images):
    nodes["/brokers/topics/u"] = nodes["/brokers/topics/t"]


def registered_anew(nodes, _controllers, _images):
    nodes["/brokers/ids/1"] = znode(znodes.encode_broker(REGISTERED), czxid=6)


def a_note(nodes, _controllers, _images):
    nodes["/admin/delete_topics/t"] = znode()


def nobody_is(_nodes, controllers, _images):
    controllers[1].is_active = False


def something_waits(_nodes, controllers, _images):
    controllers[1].queue.waiting = 1


def test_nothing_differs_at_rest():
    assert list(differences(*known())) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_context(leader=-1), "topic t of controller 1"),
        (change_context(leader_epoch=4), "topic t of controller 1"),
        (change_context(isr=()), "topic t of controller 1"),
        (change_context(partition_epoch=3), "topic t of controller 1"),
        (change_context(adding=(2,)), "topic t of controller 1"),
        (change_context(is_recovering=True), "topic t of controller 1"),
        (change_image(leader=-1), "topic t of broker 1"),
        (change_image(isr=()), "topic t of broker 1"),
        (a_topic_more, "topic u of controller 1"),
        (registered_anew, "the brokers that controller 1 knows"),
        (a_note, "the deletions of controller 1"),
        (nobody_is, "the active controllers"),
        (something_waits, "what waits in the queue of controller 1"),
    ],
)
def test_what_differs_is_named(change, said):
    nodes, controllers, images = known()
    change(nodes, controllers, images)
    assert any(line.startswith(said) for line in differences(nodes, controllers, images))
