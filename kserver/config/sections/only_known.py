"""Sections whose keys are all unused."""

from __future__ import annotations

from kserver.config.known import known_keys
from kserver.config.setting import section


@section
@known_keys("security")
class SecuritySettings:
    """Security."""


@section
@known_keys("sasl")
class SaslSettings:
    """SASL."""


@section
@known_keys("tls")
class TlsSettings:
    """TLS."""


@section
@known_keys("share_groups")
class ShareGroupSettings:
    """Share groups."""


@section
@known_keys("tiered")
class TieredSettings:
    """Tiered storage."""
