"""The tables of settings: named as they are read, explained, and in the manual as they are."""

import re
from pathlib import Path

import pytest

from kserver.config.broker import BrokerConfig
from kserver.config.group import GroupConfig
from kserver.config.manual import manual
from kserver.config.setting import settings_of
from kserver.config.topic import TopicConfig

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("config", [BrokerConfig, TopicConfig, GroupConfig])
def test_a_setting_is_an_attribute_named_as_its_key_and_explained(config: type) -> None:
    built = config()
    for setting in settings_of(config).values():
        assert getattr(built, setting.name.replace(".", "_")) == setting.default
        assert setting.doc, setting.name


def test_the_manual_is_made_from_the_settings() -> None:
    page = (ROOT / "man" / "kserver.properties.5").read_text()
    assert page == manual(), "regenerate it: python -m kcli.manual"


def test_the_manual_names_every_setting() -> None:
    named = set(re.findall(r"^\.B (\S+)$", manual().replace("\\-", "-"), re.MULTILINE))
    for config in (BrokerConfig, TopicConfig, GroupConfig):
        assert named >= settings_of(config).keys()
