"""What a start makes of its settings before a broker is there."""

from __future__ import annotations

import pytest

from kserver.broker import process
from kserver.errors import ConfigError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("given", ["one/,./two", "one,two/.", "x/../one,./two//"])
def test_log_directories_are_absolute_and_normal(here, given):
    config = process.load(
        None, [f"log.dirs={given}", f"cordoned.log.dirs={given.partition(',')[0]}"]
    )
    assert config.log_directories == (f"{here}/one", f"{here}/two")
    assert config.cordoned_log_dirs == (f"{here}/one",)
    assert config.explicit["log.dirs"] == f"{here}/one,{here}/two"


def test_those_of_a_file_count_from_where_the_broker_starts(here):
    (here / "server.properties").write_text("log.dir=data/\n")
    assert process.load("server.properties", []).log_directories == (f"{here}/data",)


@pytest.mark.parametrize("again", ["./one/", "{here}/one", "link"])
def test_one_that_is_named_twice_is_refused_as_that(here, again):
    (here / "link").symlink_to("one")
    named = again.format(here=here)
    with pytest.raises(ConfigError, match="the same directory; list it once") as refused:
        process.load(None, [f"log.dirs=one,{named}"])
    assert f"one and {named} are" in str(refused.value)
