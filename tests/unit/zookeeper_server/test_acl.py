import pytest

from kserver.world.zookeeper import Grant
from kserver.zookeeper_server.acl import Identity as I
from kserver.zookeeper_server.acl import InvalidAcl, digest, permits, resolved, visible_acl
from kserver.zookeeper_server.jute import AclRecord

ADDRESS = I("ip", "10.1.2.3")
SUPER = digest("super:test")


def test_a_digest_is_zookeepers():
    """The one of its administrator's guide."""
    assert SUPER.scheme == "digest"
    assert SUPER.id == "super:D/InIHSb7yEEbrWz8b9l71RjZJU="


def test_what_everybody_may_is_kept_as_nothing():
    assert resolved("/", [AclRecord(31, "world", "anyone")], [ADDRESS]) == ()
    assert visible_acl((), whole=False) == (AclRecord(31, "world", "anyone"),)
    assert permits((), 31, [])


def test_auth_stands_for_what_the_client_has_proven():
    assert resolved("/", [AclRecord(31, "auth", "")], [ADDRESS, SUPER]) == (Grant(31, *SUPER),)
    with pytest.raises(InvalidAcl):
        resolved("/", [AclRecord(31, "auth", "")], [ADDRESS])


@pytest.mark.parametrize(
    "record",
    [
        AclRecord(31, "world", "me"),
        AclRecord(31, "digest", "nocolon"),
        AclRecord(31, "digest", "a:b:c"),
        AclRecord(31, "ip", "10.1.2"),
        AclRecord(31, "sasl", "kafka"),
        AclRecord(31, "", ""),
    ],
)
def test_a_list_that_means_nothing_is_refused(record):
    with pytest.raises(InvalidAcl):
        resolved("/a", [record], [])


def test_an_empty_list_is_refused():
    with pytest.raises(InvalidAcl):
        resolved("/a", [], [])


def test_each_may_do_what_is_granted_to_one_of_its_identities():
    acl = (Grant(31, *SUPER), Grant(1, "world", "anyone"), Grant(4, "ip", "10.1.0.0/16"))
    assert permits(acl, 16, [ADDRESS, SUPER])
    assert permits(acl, 1, [])
    assert permits(acl, 4, [ADDRESS])
    assert not permits(acl, 4, [I("ip", "10.2.0.1")])
    assert not permits(acl, 2, [ADDRESS, digest("super:other")])


def test_a_hash_is_hidden_from_those_who_do_not_administer():
    acl = (Grant(31, *SUPER),)
    assert visible_acl(acl, whole=True) == (AclRecord(31, *SUPER),)
    assert visible_acl(acl, whole=False) == (AclRecord(31, "digest", "super:x"),)
