from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.world.znode_tree import (
    Tree,
    Watches,
    ZnodeTransaction,
    end_of_session,
    is_path,
    parent_of,
)
from kserver.world.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    SetData,
    WatchEvent,
    WatchType,
    ZooKeeperError,
)

PATHS = st.lists(st.sampled_from("ab"), min_size=1, max_size=3).map(lambda n: "/" + "/".join(n))
VERSIONS = st.sampled_from([ANY_VERSION, 0, 1])
DATA = st.binary(max_size=2)
OPS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans(), st.booleans()),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
MULTIS = st.lists(st.lists(OPS, min_size=1, max_size=4), max_size=30)


def attempt(transaction, ops, zxid, session=7):
    """The results, or the error."""
    try:
        return transaction.apply(ops, zxid=zxid, now_ms=zxid, session=session)
    except ZooKeeperError as error:
        return type(error), error.path


@given(MULTIS)
def test_requests_in_one_transaction_do_what_they_do_one_by_one(multis):
    together, one_by_one = Tree(), Tree()
    group = ZnodeTransaction(together)
    events = []
    for zxid, ops in enumerate(multis, 1):
        single = ZnodeTransaction(one_by_one)
        assert attempt(group, ops, zxid) == attempt(single, ops, zxid)
        events += single.commit()
        one_by_one.check()
    assert not together.children("/"), "nothing is seen before the commit"
    assert group.commit() == events
    together.check()
    assert together.nodes == one_by_one.nodes
    for path in together.nodes:
        assert together.children(path) == one_by_one.children(path)


@given(MULTIS)
def test_a_tree_is_its_nodes(multis):
    tree = Tree()
    for zxid, ops in enumerate(multis, 1):
        transaction = ZnodeTransaction(tree)
        attempt(transaction, ops, zxid)
        transaction.commit()
    again = Tree(tree.nodes)
    again.check()
    assert {path: again.children(path) for path in again.nodes} == {
        path: tree.children(path) for path in tree.nodes
    }


@given(MULTIS)
def test_a_failed_request_leaves_no_trace(multis):
    tree = Tree()
    for zxid, ops in enumerate(multis, 1):
        transaction = ZnodeTransaction(tree)
        if isinstance(attempt(transaction, ops, zxid), tuple):
            assert not transaction.changes
            assert not transaction.events
        transaction.commit()


@given(MULTIS)
def test_the_end_of_a_session_removes_its_ephemeral_nodes_only(multis):
    tree = Tree()
    for zxid, ops in enumerate(multis, 1):
        transaction = ZnodeTransaction(tree)
        attempt(transaction, ops, zxid, session=1 + zxid % 2)
        transaction.commit()
    lasting = {path for path, node in tree.nodes.items() if node.owner != 1}
    transaction = ZnodeTransaction(tree)
    transaction.apply(end_of_session(tree, 1), zxid=1000, now_ms=1000, session=1)
    transaction.commit()
    tree.check()
    assert set(tree.nodes) == lasting
    transaction = ZnodeTransaction(tree)
    transaction.apply(end_of_session(tree), zxid=1001, now_ms=1001, session=1)
    transaction.commit()
    assert not any(node.owner for node in tree.nodes.values())


def test_missing_parents_are_those_that_earlier_requests_did_not_make():
    transaction = ZnodeTransaction(Tree())
    transaction.apply([Create("/a")], zxid=1, now_ms=1, session=1)
    assert list(transaction.missing_parents("/a/b/c/d")) == [Create("/a/b"), Create("/a/b/c")]
    assert list(transaction.missing_parents("/a/b")) == []
    assert list(transaction.missing_parents("/x")) == []


@pytest.mark.parametrize(("path", "parent"), [("/a", "/"), ("/a/b", "/a"), ("/a/b/c", "/a/b")])
def test_a_path_has_a_parent(path, parent):
    assert parent_of(path) == parent


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "a/b"])
def test_what_is_no_path(path):
    assert not is_path(path)
    assert is_path("/")
    assert is_path("/a/b")


def test_watches_are_taken_in_the_order_in_which_they_were_left():
    watches, taken = Watches(), []
    one, two, three = (lambda event, n=n: taken.append(n) for n in range(3))
    watches.on_data("/a", two)
    watches.on_data("/a", one)
    watches.on_children("/a", three)
    watches.on_data("/a", two)
    assert watches.take(WatchEvent(WatchType.CHILDREN, "/b")) == []
    assert watches.take(WatchEvent(WatchType.DELETED, "/a")) == [two, one, three]
    assert watches.take(WatchEvent(WatchType.DELETED, "/a")) == []
