from kserver.world.zookeeper import WatchEvent, WatchType
from kserver.zookeeper_server.watches import WatchKind, WatchTable


def told(watches, kind, path):
    names = watches.trigger(WatchEvent(kind, path))
    watches.check()
    return names


def test_a_watch_of_once_is_told_once():
    watches = WatchTable()
    watches.add("a", WatchKind.DATA, "/x")
    watches.add("b", WatchKind.CHILDREN, "/x")
    assert told(watches, WatchType.CHANGED, "/x") == ["a"]
    assert told(watches, WatchType.CHANGED, "/x") == []
    assert told(watches, WatchType.CHILDREN, "/x") == ["b"]
    assert told(watches, WatchType.CHILDREN, "/x") == []
    assert watches.counts() == (0, 0, 0)


def test_whoever_watches_data_and_children_is_told_of_the_end_once():
    watches = WatchTable()
    watches.add("a", WatchKind.DATA, "/x")
    watches.add("a", WatchKind.CHILDREN, "/x")
    assert told(watches, WatchType.DELETED, "/x") == ["a"]
    assert watches.counts() == (0, 0, 0)


def test_a_lasting_watch_is_told_again_and_a_recursive_one_of_all_below():
    watches = WatchTable()
    watches.add("a", WatchKind.PERSISTENT, "/x")
    watches.add("b", WatchKind.RECURSIVE, "/x")
    for _ in range(2):
        assert told(watches, WatchType.CHANGED, "/x") == ["a", "b"]
        assert told(watches, WatchType.CHILDREN, "/x") == ["a"]
        assert told(watches, WatchType.CREATED, "/x/y/z") == ["b"]
        assert told(watches, WatchType.CREATED, "/xy") == []
    assert watches.remove("b", (WatchKind.RECURSIVE,), "/x")
    assert not watches.remove("b", (WatchKind.RECURSIVE,), "/x")
    assert told(watches, WatchType.CREATED, "/x/y") == []


def test_a_connection_that_is_gone_is_told_of_nothing():
    watches = WatchTable()
    for path in ("/x", "/y"):
        watches.add("a", WatchKind.DATA, path)
        watches.add("b", WatchKind.DATA, path)
    watches.forget("a")
    assert told(watches, WatchType.CHANGED, "/x") == ["b"]
    assert watches.counts() == (1, 1, 1)
