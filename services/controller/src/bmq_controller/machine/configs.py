"""Changing the configuration of topics and of the cluster. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from bmq.config.cluster_config import check_together, cluster_key, validate_values
from bmq.config.config_keys import VALUE_LENGTH_MAX, ConfigKey, ConfigType
from bmq.config.topic_config import FIRST_OFFSET, LANE_HEADER, PINNED, first_offset_of, topic_key, validate
from bmq.errors import InvalidConfig, InvalidRequest, UnknownTopic
from bmq.metadata.derived import config_size
from bmq.metadata.fold import changed_configs
from bmq.metadata.image import Image
from bmq.metadata.records import ConfigsChanged
from bmq.naming.names import is_internal
from bmq.roles.controller import ConfigChange, ConfigResource
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.limits import DEFAULTS, Limits, check_config_bytes
from bmq_controller.machine.pools import check_pool

NO_CONFIGS: Final[Mapping[str, str]] = {}
_AS_MADE: Final = (FIRST_OFFSET, LANE_HEADER)
"""What a topic keeps as it was made, whatever else changes."""


def alter_configs(
    image: Image,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    *,
    cluster: Mapping[str, str],
    static: Mapping[str, str] = NO_CONFIGS,
    limits: Limits = DEFAULTS,
    validate_only: bool = False,
) -> Decision[None]:
    """IncrementalAlterConfigs of one resource. `cluster` is the cluster's configuration that was set, `static` the part
    of it that the command line or file sets. Raises RequestError.
    """
    target = _Target(image, resource)
    wanted: dict[str, str | None] = {}
    for change in changes:
        if change.name in wanted:
            raise InvalidRequest(f"The request changes {change.name} twice: change it once")
        wanted[change.name] = _changed(target, change, cluster)
    return target.decide(wanted, static=static, limits=limits, validate_only=validate_only)


def replace_configs(
    image: Image,
    resource: ConfigResource,
    configs: Mapping[str, str | None],
    *,
    static: Mapping[str, str] = NO_CONFIGS,
    limits: Limits = DEFAULTS,
    validate_only: bool = False,
) -> Decision[None]:
    """AlterConfigs of one resource: what is not named (or has no value) goes back to its default. `static` as of
    `alter_configs`. Raises RequestError.
    """
    target = _Target(image, resource)
    wanted: dict[str, str | None] = dict.fromkeys(
        name for name in target.configs if name not in target.kept and name not in _AS_MADE
    )
    wanted.update(configs)
    return target.decide(wanted, static=static, limits=limits, validate_only=validate_only)


class _Target:
    """The resource whose configuration changes. Raises RequestError where it does not exist or takes none."""

    def __init__(self, image: Image, resource: ConfigResource) -> None:
        self._image = image
        self._kind = resource.kind
        self._internal = False
        self.kept: Mapping[str, str] = {}
        """What stays as it is, whatever goes back to its default."""
        match resource.kind:
            case "topic":
                topic = image.topic(resource.name)
                if topic is None:
                    raise UnknownTopic(f"There is no topic {resource.name!r}")
                self.configs = topic.configs
                self._name = str(topic.topic_id)
                self._internal = is_internal(topic.name)
                self.kept = PINNED if self._internal else {}
            case "broker":
                if resource.name:
                    raise InvalidConfig(
                        f"broker {resource.name}: nodes have no configuration of their own: change the whole "
                        "cluster's (entity-default)"
                    )
                self.configs = image.configs.get(("broker", ""), {})
                self._name = ""
            case kind:
                raise InvalidConfig(
                    f"{kind} {resource.name}: bmq has no configuration of this kind that can be changed"
                )

    def key(self, name: str) -> ConfigKey:
        return topic_key(name) if self._kind == "topic" else cluster_key(name)

    def decide(
        self, wanted: Mapping[str, str | None], *, static: Mapping[str, str], limits: Limits, validate_only: bool
    ) -> Decision[None]:
        if self._kind == "topic":
            wanted = self._without_what_stays(wanted)
        for name, value in wanted.items():
            if value is not None or name not in self.configs:
                self.key(name)
            if value is None and name in self.kept:
                raise InvalidConfig(
                    f"{name}: the coordinators' own topics keep {name}={self.kept[name]}: leave it as it is"
                )
        values = {name: value for name, value in wanted.items() if value is not None}
        if self._kind == "topic":
            values = validate(values, internal=self._internal)
            check_pool(self._image, values, before=self.configs)
        else:
            values = validate_values(values)
        changes = {name: value for name in wanted if self.configs.get(name) != (value := values.get(name))}
        if self._kind == "broker":
            check_together({**static, **changed_configs(self.configs, changes)}, changes)
        check_config_bytes(
            self._image, config_size(changed_configs(self.configs, changes)) - config_size(self.configs), limits=limits
        )
        if validate_only or not changes:
            return Decision(None)
        return Decision(None, (ConfigsChanged(kind=self._kind, name=self._name, changes=changes),))

    def _without_what_stays(self, wanted: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Without what a topic keeps as it was made. Raises InvalidConfig where it would change."""
        first_offset = topic_key(FIRST_OFFSET).parse(wanted.get(FIRST_OFFSET) or "0")
        if FIRST_OFFSET in wanted and first_offset != first_offset_of(self.configs):
            raise InvalidConfig(
                f"{FIRST_OFFSET}: a topic's first offset is what it was when the topic was made: leave it as it is"
            )
        if LANE_HEADER in wanted and (wanted[LANE_HEADER] or "").strip() != self.configs.get(LANE_HEADER, ""):
            raise InvalidConfig(
                f"{LANE_HEADER}: where records go is said when the topic is made, as a producer may send some again: "
                "leave it as it is, or make the topic anew"
            )
        return {name: value for name, value in wanted.items() if name not in _AS_MADE}


def _changed(target: _Target, change: ConfigChange, cluster: Mapping[str, str]) -> str | None:
    """The value that one change leads to; None: back to the default."""
    if change.operation == "delete":
        return None
    if change.value is None:
        raise InvalidConfig(f"{change.name}: no value to {change.operation}")
    match change.operation:
        case "set":
            return change.value
        case "append" | "subtract":
            key = target.key(change.name)
            if key.type is not ConfigType.LIST:
                raise InvalidConfig(f"{change.name}: {change.operation} is for lists: use set")
            if len(change.value) > VALUE_LENGTH_MAX:
                raise InvalidConfig(
                    f"{change.name}: {len(change.value)} characters to {change.operation}: at most {VALUE_LENGTH_MAX} "
                    "are possible"
                )
            now = target.configs.get(change.name, cluster.get(key.synonym or key.name, key.default))
            return _combined(now, change)
        case other:
            raise InvalidRequest(f"{change.name}: the operation {other!r} is none of set, delete, append, subtract")


def _combined(now: str, change: ConfigChange) -> str:
    items = [item.strip() for item in now.split(",") if item.strip()]
    named = [item.strip() for item in (change.value or "").split(",") if item.strip()]
    if change.operation == "append":
        there = frozenset(items)
        return ",".join([*items, *(item for item in dict.fromkeys(named) if item not in there)])
    taken = frozenset(named)
    return ",".join(item for item in items if item not in taken)
