"""What a setting names: one of Kafka's classes that has its like here, or Python code of one's own.

value.serializer=org.apache.kafka.common.serialization.StringSerializer
value.deserializer=json.loads
interceptor.classes=mine.audit.Counter
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from kserver.errors import ConfigError


def named(key: str, name: str, known: Mapping[str, Any]) -> Any:
    """What `known` has for the class, with its package or without; else what is found as
    package.module.name.  Of a class it is an instance.

    ConfigError when there is no such thing.
    """
    ours = {full: full for full in known} | {full.rpartition(".")[2]: full for full in known}
    module, _, attribute = name.replace(":", ".").rpartition(".")
    try:
        found = (
            known[ours[name]]
            if name in ours
            else getattr(importlib.import_module(module), attribute)
        )
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"Invalid value {name} for configuration {key}: Class {name} could not be found."
            " Name Python code as package.module.name"
        ) from error
    return found() if isinstance(found, type) else found
