"""`k configs`: describes and alters configurations, and quotas of clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from kcli.command.command import OLDER, Manual, Options, command
from kcli.command.command_runner import CLUSTER, admin_config, confirm, raise_first, run, unwrap
from kcli.command.options import (
    CONNECTION,
    Refused,
    bootstrap_server,
    command_config,
    dry_run,
    exclude,
    is_set,
    option,
    option_group,
    read_properties,
    refuse,
    timeout,
    yes,
)
from kcli.command.output import complain, print_output, would
from kcli.command.statuses import DONE, FAILED
from kcli.rows import config_lines
from kcli.rows.config_lines import BOUNDS, QUOTA_TYPES, QUOTAS, SETTINGS, TYPES, Entity
from kcli.rows.listing import Rows, formatted, rows_if_asked
from kserver.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kcli.client.admin.admin import (
        Admin,
        ConfigEntry,
        ConfigResource,
        ConfigSource,
        ResourceType,
    )
    from kcli.client.cluster import Node
    from kcli.client.config import AdminConfig
    from kserver.model import QuotaEntity

ACTION = "Action (one of)"
ENTITY = "Whose"
SHORT = "Entity, as one option"

NAMED = {
    "topic": "topics",
    "client": "clients",
    "user": "users",
    "broker": "brokers",
    "broker-logger": "broker-loggers",
    "ip": "ips",
    "client-metrics": "client-metrics",
    "group": "groups",
}
"""Shorthands for --entity-type and --entity-name, in Kafka's order."""
DEFAULTS = {
    "client-defaults": "clients",
    "user-defaults": "users",
    "broker-defaults": "brokers",
    "ip-defaults": "ips",
}
"""Shorthands for --entity-type and --entity-default."""
WITH_DEFAULT = ("users", "clients", "brokers", "ips")
CHANGES = ("add-config", "add-config-file", "delete-config")
OLD_FORMAT = "message.format.version"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

MANUAL = Manual(
    kafka="kafka-configs.sh",
    examples=(
        ("k configs --describe --topic orders", "The configs that are set for a topic itself."),
        ("k configs --describe --broker 0 --all", "All configs of a broker, and their sources."),
        (
            "k configs --describe --topic orders --all -o template='{name}={value}'",
            "All configs of a topic, one per line.",
        ),
        (
            "k configs --alter --topic orders --add-config retention.ms=86400000 --dry-run",
            "Show the effect of a change.",
        ),
        (
            "k configs --alter --topic orders --add-config 'cleanup.policy=[compact,delete]'",
            "Brackets enclose a value that contains commas.",
        ),
        (
            "k configs --alter --broker-defaults --add-config max.connections=500",
            "A limit for every broker, without a restart.",
        ),
        ("k configs --alter --topic orders --delete-config retention.ms", "Back to the default."),
        (
            "k configs --alter --client loader --add-config producer_byte_rate=1048576",
            "A quota for a client id.",
        ),
        (
            "k configs --alter --broker-logger 0 --add-config kserver.log=DEBUG",
            "Change a log level of a broker, until it restarts.",
        ),
    ),
    differences=(
        "If an entity does not exist, the exit status is 1; a group is shown whether it exists "
        "or not.",
        "An error is one line, without the arguments of the command line, which may contain "
        "passwords; an invalid argument ends with status 2.",
        "Topics, groups and quotas are shown in the order of their names.",
        "A line feed or other control character in the name of a quota is shown escaped, as \\n.",
        "If a change may delete records, such as a shorter retention, and standard input and "
        "error are a terminal, the command asks first; --yes, or --force as in kafka-configs.sh "
        "until 3.9, changes without asking.",
        "A config that the broker does not know, but stores, is reported on standard error.",
        "Brokers are changed by IncrementalAlterConfigs, as in Kafka 4, so passwords need not be "
        "given again.",
        "--zookeeper and --zk-tls-config-file of kafka-configs.sh until 3.9 are refused: use "
        "--bootstrap-server.",
        "Without --bootstrap-server and --bootstrap-controller, the usual default is used.",
        "SCRAM credentials of users are not shown in rows, nor by a broker that stores none; the "
        "error for an invalid credential does not repeat it.",
        "Only groups that have configs, as the broker lists them, are shown.",
    ),
    see_also=("k-topics", "kserver.properties(5)"),
)


@command(manual=MANUAL)
@option_group(
    option("--describe", "Print settings.", section=ACTION),
    option("--alter", "Change settings.", section=ACTION),
    option("--all", "Also show static and default values."),
    option(
        "--add-config",
        "Configs to set; brackets enclose a value that contains commas.",
        "KEY=VALUE,KEY=[VALUE,VALUE],...",
    ),
    option("--add-config-file", "A properties file with configs to set.", "FILE"),
    option("--delete-config", "Configs to delete.", "KEY,..."),
    dry_run,
    yes,
    formatted(SETTINGS, BOUNDS),
    option(
        "--entity-type",
        f"One of {', '.join(TYPES)}; users and clients may be combined.  Repeatable.",
        "TYPE",
        multiple=True,
        section=ENTITY,
    ),
    option(
        "--entity-name",
        "Name of the entity; with several types, in their order.  Repeatable.",
        "NAME",
        multiple=True,
        section=ENTITY,
    ),
    option(
        "--entity-default",
        "The default of users, clients, brokers or ips.",
        adds=("entity_name", ""),
        section=ENTITY,
    ),
    option("--topic", "A topic.", "NAME", section=SHORT),
    option("--client", "A client id.", "ID", section=SHORT),
    option("--client-defaults", "The default of all client ids.", section=SHORT),
    option("--user", "A user.", "NAME", section=SHORT),
    option("--user-defaults", "The default of all users.", section=SHORT),
    option("--broker", "A broker.", "ID", section=SHORT),
    option("--broker-defaults", "The default of all brokers.", section=SHORT),
    option("--broker-logger", "The loggers of a broker.", "ID", section=SHORT),
    option("--ip", "An address of clients.", "ADDRESS", section=SHORT),
    option("--ip-defaults", "The default of all addresses.", section=SHORT),
    option("--client-metrics", "A subscription to metrics of clients.", "NAME", section=SHORT),
    option("--group", "A group.", "ID", section=SHORT),
    bootstrap_server,
    option(
        "--bootstrap-controller",
        "Controllers of KRaft to connect to instead.",
        "HOST:PORT,...",
        section=CONNECTION,
    ),
    command_config,
    timeout,
    option("--force", "The same as --yes.", instead="--yes", yields=True, section=OLDER),
    option("--zookeeper", "Refused.", "HOST:PORT,...", section=OLDER),
    option("--zk-tls-config-file", "Refused.", "FILE", section=OLDER),
)
def configs(options: Options) -> int:
    """Prints or changes the configs of topics, brokers, broker loggers, client metrics and groups,
    and the quotas of users, client ids and addresses.

    --describe shows the configs that are set for the entity itself, and the source of each value;
    with --all, defaults too.  Without a name, it shows all entities of the type.

    --alter sets and deletes configs, all of them or none.  Configs of a broker take effect at
    once.  Configs that need a restart are refused, and so are configs that name a class, a file, a
    command or a password.
    """
    entities = _entities(options)
    _check(options, entities)
    if options.bootstrap_controller is not None:
        options.bootstrap_server = options.bootstrap_controller
    if options.alter:
        return run(_alter(options, entities), options.timeout, CLUSTER)
    shape = BOUNDS if entities[0].type in QUOTA_TYPES else SETTINGS
    with rows_if_asked(options, shape) as out:
        return run(_describe(options, entities, out), options.timeout, CLUSTER)


def _entities(options: Options) -> list[Entity]:
    """Return the requested entities. Raises UsageError, in Kafka's words, if they are invalid."""
    short = [name for name in (*NAMED, *DEFAULTS) if is_set(options, name)]
    types = [*options.entity_type, *(NAMED.get(name) or DEFAULTS[name] for name in short)]
    names = [*options.entity_name, *(_word(options, name) for name in short)]
    if doubled := [type for at, type in enumerate(types) if type in types[:at]]:
        refuse(f"Duplicate entity type(s) specified: {','.join(doubled)}")
    for type in types:
        if type not in TYPES:
            refuse(
                f"Invalid entity type {type}, the entity type must be one of {', '.join(TYPES)} "
                "with a --bootstrap-server or --bootstrap-controller argument"
            )
    if not types:
        refuse("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {"users", "clients"}:
        refuse("Only 'users' and 'clients' entity types may be specified together")
    if short and (options.entity_type or options.entity_name):
        refuse(
            "--entity-{type,name,default} should not be used in conjunction with specific entity "
            "flags"
        )
    if len(names) > len(types):
        refuse("More entity names specified than entity types")
    return [Entity(type, names[at] if at < len(names) else None) for at, type in enumerate(types)]


def _word(options: Options, option: str) -> str:
    return "" if option in DEFAULTS else getattr(options, option.replace("-", "_"))


def _check(options: Options, entities: Sequence[Entity]) -> None:
    """Check the rules between options, in Kafka's order and words."""
    if options.alter == options.describe:
        refuse("Command must include exactly one action: --describe, --alter")
    for name in CHANGES:
        exclude(options, "describe", (name,))
    for name in ("all", "output"):
        exclude(options, "alter", (name,))
    exclude(options, "describe", ("dry-run",))
    for name in ("zookeeper", "zk-tls-config-file"):
        if is_set(options, name):
            refuse(f"--{name} is not supported; use --bootstrap-server")
    exclude(options, "bootstrap-controller", ("bootstrap-server",))
    for entity in entities:
        _check_name(entity)
    type, entity_name = entities[0]
    if options.describe:
        if entity_name == "" and type not in WITH_DEFAULT:
            refuse(f"--entity-default must not be specified with --describe of {type}")
        if type == "broker-loggers" and entity_name is None:
            refuse(f"An entity name must be specified with --describe of {type}")
        return
    if type in WITH_DEFAULT:
        if all(entity.name is None for entity in entities):
            refuse(
                "An entity-name or default entity must be specified with --alter of users, "
                "clients, brokers or ips"
            )
    elif not entity_name:
        refuse(f"An entity name must be specified with --alter of {type}")
    if any(entity.name is None for entity in entities):
        refuse("An entity name must be specified for every entity type")
    if is_set(options, "add-config") and is_set(options, "add-config-file"):
        refuse("Only one of --add-config or --add-config-file must be specified")
    if not any(is_set(options, name) for name in CHANGES):
        refuse(
            "At least one of --add-config, --add-config-file, or --delete-config must be "
            "specified with --alter"
        )


def _check_name(entity: Entity) -> None:
    type, name = entity
    if not name:
        return
    if type in ("brokers", "broker-loggers"):
        try:
            int(name)
        except ValueError:
            refuse(
                f"The entity name for {type} must be a valid integer broker id, but it is: {name}"
            )
    if type == "ips":
        from kcli.servers.reachability import is_resolvable

        if not is_resolvable(name):
            refuse(
                f"The entity name for {type} must be a valid IP or resolvable host, but it is:"
                f" {name}"
            )


def _config(options: Options) -> AdminConfig:
    if options.bootstrap_controller is None:
        return admin_config(options)
    return admin_config(options, bootstrap_controllers=options.bootstrap_controller)


async def _describe(options: Options, entities: list[Entity], out: Rows | None) -> int:
    from kcli.client.admin.admin import Admin

    async with Admin(_config(options)) as admin:
        if entities[0].type in QUOTA_TYPES:
            for bounded, bounds in sorted((await _quotas(admin, entities)).items(), key=str):
                if out is None:
                    print_output(config_lines.quota_line(bounded, bounds))
                    continue
                for row in config_lines.quota_rows(bounded, bounds):
                    out.row(**row)
            if out is None:
                await _show_credentials(admin, entities)
            return DONE
        first = entities[0]
        if not options.all and not await _exists(admin, first):
            if out is not None:
                raise Refused(config_lines.absent(first))
            print_output(config_lines.absent(first))
            return FAILED
        async for entity in _each(admin, first):
            if out is None:
                print_output(config_lines.heading(entity, options.all))
            for entry in await _settings(admin, entity, options.all, documented=out is not None):
                if out is None:
                    print_output(config_lines.line(entry))
                else:
                    out.row(**config_lines.row(entity, entry))
    return DONE


async def _show_credentials(admin: Admin, entities: list[Entity]) -> None:
    """Print SCRAM credentials of users, unless clients or defaults are requested."""
    if [entity.type for entity in entities] != ["users"] or entities[0].name == "":
        return
    name = entities[0].name
    try:
        by_user = await admin.describe_user_scram_credentials([] if name is None else [name])
    except KafkaError as error:
        if error.code != ErrorCode.unsupported_version:
            raise
        return
    for user, credentials in sorted(by_user.items(), key=lambda pair: pair[0]):
        print_output(config_lines.credential_line(user, credentials))


async def _each(admin: Admin, entity: Entity) -> AsyncIterator[Entity]:
    """Yield the named entity, or all of its type."""
    from kcli.client.admin.admin import ResourceType

    type, name = entity
    if name is not None:
        yield entity
    elif type == "topics":
        for topic in await admin.list_topics():
            yield Entity(type, topic.name)
    elif type == "brokers":
        for node in await _nodes(admin):
            yield Entity(type, str(node.id))
        yield Entity(type, "")
    else:
        kind = {"client-metrics": ResourceType.CLIENT_METRICS, "groups": ResourceType.GROUP}[type]
        for _, resource in sorted(await admin.list_config_resources([kind])):
            yield Entity(type, resource)


async def _exists(admin: Admin, entity: Entity) -> bool:
    """Whether the named entity exists, as far as is known without describing it."""
    from kcli.client.admin.admin import ResourceType

    type, name = entity
    if not name or type == "groups" or admin.asks_controllers:
        return True
    if type == "topics":
        return name in {topic.name for topic in await admin.list_topics()}
    if type == "client-metrics":
        return (ResourceType.CLIENT_METRICS, name) in await admin.list_config_resources(
            [ResourceType.CLIENT_METRICS]
        )
    return int(name) in {node.id for node in await _nodes(admin)}


async def _nodes(admin: Admin) -> list[Node]:
    return (await admin.describe_cluster(controllers=admin.asks_controllers)).brokers


def _resource(entity: Entity) -> tuple[ConfigResource, ConfigSource | None]:
    """Return the protocol's resource, and the source of the entity's own values."""
    from kcli.client.admin.admin import ConfigSource, ResourceType

    kinds: dict[str, tuple[ResourceType, ConfigSource | None]] = {
        "topics": (ResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
        "brokers": (
            ResourceType.BROKER,
            ConfigSource.DYNAMIC_BROKER_CONFIG
            if entity.name
            else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
        ),
        "broker-loggers": (ResourceType.BROKER_LOGGER, None),
        "client-metrics": (
            ResourceType.CLIENT_METRICS,
            ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
        ),
        "groups": (ResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
    }
    kind, source = kinds[entity.type]
    return (kind, entity.name or ""), source


async def _settings(
    admin: Admin, entity: Entity, everything: bool, *, documented: bool = False
) -> list[ConfigEntry]:
    """Return the entity's own settings by name, or all settings."""
    resource, source = _resource(entity)
    results = await admin.describe_configs(
        [resource], include_synonyms=True, include_documentation=documented
    )
    return [
        entry
        for entry in sorted(unwrap(results[resource]), key=lambda entry: entry.name)
        if everything or source is None or entry.source is source
    ]


async def _quotas(admin: Admin, entities: list[Entity]) -> dict[QuotaEntity, dict[str, float]]:
    from kcli.client.admin.quotas import Match, QuotaComponent

    components = [
        QuotaComponent(QUOTA_TYPES[type], Match.EXACT, name)
        if name
        else QuotaComponent(QUOTA_TYPES[type], Match.ANY if name is None else Match.DEFAULT)
        for type, name in entities
    ]
    return await admin.describe_client_quotas(components, strict=True)


async def _alter(options: Options, entities: list[Entity]) -> int:
    from kcli.client.admin.admin import Admin

    additions = {}
    if options.add_config_file is not None:
        additions = read_properties(options.add_config_file)
    elif options.add_config is not None:
        additions = config_lines.additions(options.add_config)
    config_lines.check_keys(additions)
    deleted = [key.strip() for key in (options.delete_config or "").split(",") if key.strip()]
    if OLD_FORMAT in additions:
        complain(f"{OLD_FORMAT} is accepted, but has no effect since Kafka 3.0.")
    async with Admin(_config(options)) as admin:
        change = _alter_quotas if entities[0].type in QUOTA_TYPES else _alter_settings
        await change(admin, options, entities, additions, deleted)
    if not options.dry_run:
        type, name = entities[0]
        print_output(
            f"Completed updating config for {config_lines.singular(type)} {name}."
            if name
            else f"Completed updating default config for {type} in the cluster."
        )
    return DONE


async def _alter_settings(
    admin: Admin,
    options: Options,
    entities: list[Entity],
    additions: dict[str, str],
    deleted: list[str],
) -> None:
    from kcli.client.admin.admin import ConfigChange, ConfigOp

    entity = entities[0]
    resource, source = _resource(entity)
    try:
        now = {entry.name: entry for entry in await _settings(admin, entity, everything=True)}
    except KafkaError:
        now = {}  # the error of the change is more precise
    own = {name for name, entry in now.items() if source is None or entry.source is source}
    unknown = [key for key in (*deleted, *additions) if key not in own]
    if unknown and entity.type == "broker-loggers":
        raise Refused(f"Invalid broker logger(s): {','.join(unknown)}")
    if entity.type == "brokers":
        await _warn_of_unknown(admin, entity, additions)
    changes = [ConfigChange(key, ConfigOp.SET, value) for key, value in additions.items()]
    changes += [ConfigChange(key, ConfigOp.DELETE) for key in deleted if key not in additions]
    steps = []
    losing = []
    for key, _, value in changes:
        if value is None and key not in own:
            steps.append(f"leave {key} of {entity} unchanged, because it is not set")
            continue
        step = config_lines.step(entity, key, now.get(key), value)
        loss = config_lines.loss(key, now.get(key), value)
        steps.append(step if loss is None else f"{step}: {loss}")
        losing += [] if loss is None else [steps[-1]]
    if losing and not options.dry_run:
        await confirm(options, *losing)
    raise_first(
        await admin.incremental_alter_configs({resource: changes}, validate_only=options.dry_run)
    )
    if options.dry_run:
        would(*steps)


async def _warn_of_unknown(admin: Admin, entity: Entity, keys: Iterable[str]) -> None:
    """Warn of keys that the broker does not know; it keeps them, since a plug-in may know them."""
    from kcli.client.admin.admin import ConfigType

    whose = entity.name or str((await _nodes(admin))[0].id)
    try:
        entries = await _settings(admin, Entity("brokers", whose), everything=True)
    except KafkaError:
        return  # the error of the change is more precise
    known_names = {entry.name for entry in entries if entry.type is not ConfigType.UNKNOWN}
    for key in keys:
        # Brokers before 2.6 do not report types.
        if known_names and key not in known_names and not key.startswith("listener.name."):
            complain(
                f"{key} is not a config that the broker knows; it is stored, and has no effect."
            )


async def _alter_quotas(
    admin: Admin,
    options: Options,
    entities: list[Entity],
    additions: dict[str, str],
    deleted: list[str],
) -> None:
    from kserver.model import QuotaEntity

    names = {entity.type: entity.name for entity in entities}
    type = entities[0].type if len(entities) == 1 else "clients"
    for keys, done in ((list(additions), "added"), (deleted, "deleted")):
        valid_keys = (*QUOTAS[type], *SCRAM) if type == "users" else QUOTAS[type]
        if unknown := [key for key in keys if key not in valid_keys]:
            kind = {"ips": "connection quota", "users": "quota and SCRAM credential"}.get(
                type, "quota"
            )
            raise Refused(
                f"Only {kind} configs can be {done} for '{type}' using --bootstrap-server. "
                f"Unexpected config names: {', '.join(unknown)}"
            )
    if any(key in SCRAM for key in (*additions, *deleted)):
        await _alter_credentials(admin, options, entities[0].name or "", additions, deleted)
        return
    bounded = QuotaEntity(names.get("users"), names.get("clients"), names.get("ips"))
    now = (await _quotas(admin, entities)).get(bounded, {})
    if absent := [key for key in deleted if key not in now]:
        raise Refused(f"Invalid config(s): {','.join(absent)}")
    bounds: dict[str, float | None] = {key: _number(key, value) for key, value in additions.items()}
    bounds |= {key: None for key in deleted if key not in additions}
    raise_first(await admin.alter_client_quotas({bounded: bounds}, validate_only=options.dry_run))
    if options.dry_run:
        whose = ", ".join(map(str, entities))
        for key, bound in bounds.items():
            was = f", now {now[key]:g}" if key in now else ""
            done = f"take {key} away from" if bound is None else f"set {key}={bound:g} for"
            would(f"{done} {whose}{was}")


async def _alter_credentials(
    admin: Admin, options: Options, user: str, additions: dict[str, str], deleted: list[str]
) -> None:
    from kcli.client.admin.scram import ScramMechanism

    if not user:
        raise Refused(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            "Credentials using --bootstrap-server."
        )
    if any(key not in SCRAM for key in (*additions, *deleted)):
        raise Refused(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' using "
            "--bootstrap-server."
        )
    credentials = [config_lines.credential(user, key, text) for key, text in additions.items()]
    gone = [(user, ScramMechanism[config_lines.attribute(key)]) for key in deleted]
    if options.dry_run:
        would(*(f"set a credential for {key} of user {user}" for key in additions))
        would(*(f"take the credential for {key} away from user {user}" for key in deleted))
        return
    raise_first(await admin.alter_user_scram_credentials(credentials, gone))


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Refused(f"Cannot parse quota configuration value for {key}: {text}") from None
