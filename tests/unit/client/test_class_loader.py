from __future__ import annotations

import json
from collections import Counter

import pytest

from kcli.client.class_loader import instance_of
from kcli.client.producer.partitioner import PARTITIONERS, RoundRobinPartitioner, sticky
from kserver.errors import ConfigError


def test_kafkas_classes_are_known_with_their_package_and_without():
    package = "org.apache.kafka.clients.producer."
    for name in ("UniformStickyPartitioner", f"{package}UniformStickyPartitioner"):
        assert instance_of("partitioner.class", name, PARTITIONERS) is sticky
    assert isinstance(
        instance_of("partitioner.class", "RoundRobinPartitioner", PARTITIONERS),
        RoundRobinPartitioner,
    )


@pytest.mark.parametrize("name", ["json.loads", "json:loads"])
def test_python_code_is_found_by_its_path(name):
    assert instance_of("value.deserializer", name, {}) is json.loads


def test_of_a_class_it_is_an_instance():
    assert instance_of("interceptor.classes", "collections.Counter", {}) == Counter()


@pytest.mark.parametrize("name", ["com.example.Mine", "json.nothing", "Mine", "", ".", "json."])
def test_what_is_not_there_is_refused_with_its_key_and_a_remedy(name):
    with pytest.raises(ConfigError) as caught:
        instance_of("interceptor.classes", name, {})
    text = str(caught.value)
    assert text.startswith(f"Invalid value {name} for configuration interceptor.classes: ")
    assert "package.module.name" in text
