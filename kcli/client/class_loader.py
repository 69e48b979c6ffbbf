"""Loads the code that a config names: an equivalent of one of Kafka's classes, or Python code.

value.serializer=org.apache.kafka.common.serialization.StringSerializer
value.deserializer=json.loads
interceptor.classes=mine.audit.Counter
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from kserver.errors import ConfigError


def instance_of(key: str, name: str, classes: Mapping[str, Any]) -> Any:
    """Return the entry of `classes` for the class, with its package or without; else the object at
    package.module.name. A class is instantiated.

    Raises ConfigError if there is no such object.
    """
    ours = {full: full for full in classes} | {full.rpartition(".")[2]: full for full in classes}
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        instance = (
            classes[ours[name]]
            if name in ours
            else getattr(importlib.import_module(module), attribute)
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"Invalid value {name} for configuration {key}: Class {name} could not be found."
            " Name Python code as package.module.name"
        ) from error
    return instance() if isinstance(instance, type) else instance
