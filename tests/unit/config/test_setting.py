from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kserver.config.setting import (
    CLASS,
    DOUBLE,
    GZIP_LEVEL,
    INT,
    LONG,
    LONG_MAX,
    PASSWORD,
    SHORT,
    Layer,
    Setting,
    Source,
    Synonym,
    at_least,
    between,
    effective,
    given_in,
    one_of,
    setting,
    settings_of,
)
from kserver.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Base:
    age_ms: int | None = setting(
        "age.ms", None, type=LONG, synonyms=["other.ms", Synonym("age.hours", 3_600_000)], doc="-"
    )
    other_ms: int | None = setting("other.ms", None, type=LONG, doc="-")


@dataclass(frozen=True, kw_only=True)
class Config(Base):
    age_hours: int = setting("age.hours", 2, doc="-")
    size_bytes: int = setting("size.bytes", 10, at_least(4), doc="-")
    small: int = setting("small", 1, type=SHORT, doc="-")
    ratio: float = setting("ratio", 0.5, between(0, 1), doc="-")
    on: bool = setting("on", True, doc="-")
    policy: tuple[str, ...] = setting("policy", ("a",), one_of("a", "b"), doc="-")
    kind: str = setting("kind", "x", one_of("x", "y"), doc="-")
    level: int = setting("level", -1, GZIP_LEVEL, doc="-")
    name: str | None = setting("name", None, type=CLASS, doc="-")
    secret: str | None = setting("secret", None, type=PASSWORD, doc="-")


def of(name: str) -> Setting:
    return settings_of(Config)[name]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("size.bytes", "x", "Not a number of type INT"),
        ("size.bytes", "", "Not a number of type INT"),
        ("size.bytes", "1_0", "Not a number of type INT"),
        ("size.bytes", "1.0", "Not a number of type INT"),
        ("size.bytes", "2147483648", "Not a number of type INT"),
        ("size.bytes", "-2147483649", "Not a number of type INT"),
        ("size.bytes", "3", "Value must be at least 4"),
        ("small", "32768", "Not a number of type SHORT"),
        ("age.ms", "9223372036854775808", "Not a number of type LONG"),
        ("ratio", "x", "Not a number of type DOUBLE"),
        ("ratio", "1_0.0", "Not a number of type DOUBLE"),
        ("ratio", "1.5", "Value must be no more than 1"),
        ("ratio", "-0.5", "Value must be at least 0"),
        ("on", "yes", "Expected value to be either true or false"),
        ("policy", "c", "String must be one of: a, b"),
        ("policy", "a,", "values must not be empty"),
        ("kind", "", "String must be one of: x, y"),
        ("level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("level", "10", "Value must be between 1 and 9 or equal to -1"),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        of(name).parse(text)
    assert str(refused.value) == f"Invalid value {text} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size.bytes", " 5 ", 5),
        ("size.bytes", "+5", 5),
        ("small", "-32768", -32768),
        ("age.ms", "9223372036854775807", LONG_MAX),
        ("ratio", "1e-3", 0.001),
        ("ratio", ".5", 0.5),
        ("on", "TRUE", True),
        ("on", "false", False),
        ("policy", "", ()),
        ("policy", "a, b,a", ("a", "b")),
        ("kind", " y ", "y"),
        ("level", "-1", -1),
        ("level", "9", 9),
        ("name", "org.example.Policy", "org.example.Policy"),
    ],
)
def test_text_means_what_kafka_takes_it_for(name: str, text: str, value: object) -> None:
    assert of(name).parse(text) == value


def test_a_refused_password_is_not_shown() -> None:
    assert "hunter2" not in of("secret").explain("hunter2", "Value must not be empty")


def test_a_password_is_never_rendered() -> None:
    assert of("secret").render("hunter2") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.0, "1.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (123456.7, "123456.7"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-1e10, "-1.0E10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
    ],
)
def test_a_double_is_rendered_as_java_does(value: float, text: str) -> None:
    assert of("ratio").render(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_rendered_double_parses_to_itself(value: float) -> None:
    plain = Setting("d", DOUBLE, 0.0, between(value, value), *STATIC)
    text = plain.render(value)
    assert text is not None
    assert plain.parse(text) == value


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_rendered_int_parses_to_itself(value: int) -> None:
    plain = Setting("i", INT, 0, between(value, value), *STATIC)
    assert plain.parse(str(plain.render(value))) == value


STATIC = (of("ratio").dynamic, of("ratio").acts, (), None, "-")


@given(st.lists(st.sampled_from(["a", "b"]), unique=True))
def test_a_rendered_list_parses_to_itself(value: list[str]) -> None:
    policy = of("policy")
    assert policy.parse(str(policy.render(tuple(value)))) == tuple(value)


def test_null_renders_as_nothing() -> None:
    assert of("age.ms").render(None) is None


def test_a_configuration_has_the_settings_of_what_it_is_built_upon_first() -> None:
    assert list(settings_of(Config))[:3] == ["age.ms", "other.ms", "age.hours"]


def test_the_attribute_is_the_key_with_underscores() -> None:
    assert of("size.bytes").attribute == "size_bytes"


def test_an_unset_setting_takes_the_first_synonym_that_is_set_in_its_own_unit() -> None:
    assert effective(Config(), of("age.ms")) == 7_200_000
    assert effective(Config(other_ms=5), of("age.ms")) == 5
    assert effective(Config(age_ms=1, other_ms=5), of("age.ms")) == 1


def test_a_negative_synonym_is_not_scaled() -> None:
    assert effective(Config(age_hours=-1), of("age.ms")) == -1


def test_places_that_give_a_value_are_listed_from_the_settings_own_name_on() -> None:
    layers = [
        Layer(Source.STATIC_BROKER_CONFIG, {"age.ms": "1", "age.hours": "3"}),
        Layer(Source.DEFAULT_CONFIG, {"age.ms": None, "age.hours": "2"}),
    ]
    assert given_in(layers, of("age.ms")) == [
        ("age.ms", "1", Source.STATIC_BROKER_CONFIG),
        ("age.hours", "3", Source.STATIC_BROKER_CONFIG),
        ("age.hours", "2", Source.DEFAULT_CONFIG),
    ]
    del layers[0].values["age.ms"]
    assert given_in(layers, of("age.ms")) == []


def test_a_password_is_listed_without_its_value() -> None:
    layers = [Layer(Source.STATIC_BROKER_CONFIG, {"secret": "hunter2"})]
    assert given_in(layers, of("secret")) == [("secret", None, Source.STATIC_BROKER_CONFIG)]
