"""--grep finds records by key, value and headers."""

import pytest

from kcli.console.record_filter import MalformedTerm, RecordFilter
from kserver.wire.batch import Record

HEADERS = (("tenant", b"acme"), ("trace", b"\xff\x01"), ("none", None))
RECORD = Record(0, 0, b"user:42", b'{"name": "Zo\xc3\xab"}', HEADERS)
NULLS = Record(1, 0, None, None, ())


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        ([], True),
        (["42"], True),
        (["Zoë"], True),
        (["acme"], True),
        (["tenant"], False),
        (["k:^user:[0-9]+$"], True),
        (["k:name"], False),
        (["v:name"], True),
        (["v:user"], False),
        (["(?i)NAME"], True),
        (["hk:^tenant$"], True),
        (["hk:acme"], False),
        (["hv:acme"], True),
        (["hv:tenant"], False),
        (["h:tenant=^acme$"], True),
        (["h:trace=acme"], False),
        (["h:none="], False),
        (["h:tenant="], True),
        (["hv:\\xff"], True),
        (['v:Zo[^a-z]{2}"'], True),
        (['v:Zoë+"'], True),
        ([r"k:\Quser:\E\p{Digit}{2}\z"], True),
        (["hv:[\\x80-\\xff]\\x01$"], True),
        (['v:Zo.."}'], True),
        (["k:[a-z&&[^xyz]]+:"], True),
        (["x:42"], False),
        (["user:42"], True),
        (["!v:name"], False),
        (["!k:name"], True),
        (["!!k:user"], True),
        (["k:user", "v:name"], True),
        (["k:user", "v:other"], False),
        (["k:user", "!v:other"], True),
    ],
)
def test_terms_find_records(terms, matches):
    assert RecordFilter(terms).matches(RECORD) is matches


@pytest.mark.parametrize("term", ["", "k:", "v:", "hv:", "h:a=", "."])
def test_a_null_matches_nothing(term):
    assert not RecordFilter([term]).matches(NULLS)
    assert RecordFilter([f"!{term}"]).matches(NULLS)


@pytest.mark.parametrize(
    ("term", "why"),
    [
        ("(", "( is an invalid regex: a group ( is not closed by )"),
        ("k:*", "* is an invalid regex: there is nothing before * to repeat"),
        ("!v:[", "[ is an invalid regex: a class [ is not closed by ]"),
        ("h:tenant", "'h:tenant' is not like h:NAME=PATTERN"),
    ],
)
def test_what_makes_no_sense_is_refused(term, why):
    with pytest.raises(MalformedTerm) as caught:
        RecordFilter([term])
    assert str(caught.value) == why
