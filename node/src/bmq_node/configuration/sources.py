"""Where `bmq server`'s configuration comes from: flags before `BMQ_*` variables before the file before defaults.

The file is YAML: Helm charts write it with `toYaml` straight from their values, bmq's own resources are YAML, and so
are the files of the brokers that operators know best. What cannot be used is refused in one line: the key as it was
given, its value, the remedy.
"""

import difflib
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml  # type: ignore[import-untyped]
from pydantic import ValidationError, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from bmq.errors import ConfigurationError
from bmq.values import NODE_ID_MAX
from bmq_node.configuration.host_names import BASE, NODE_ID, on_host
from bmq_node.configuration.server_config import PREFIX, ServerConfig, about, flag_of, variable_of

PAGE: Final = "docs/server-configuration.md"
OTHER_VARIABLES: Final = frozenset(
    ("BMQ_ADMIN_URL", "BMQ_BOOTSTRAP_SERVER", "BMQ_DEBUG", "BMQ_LANE", "BMQ_SUPERVISOR_PID", "BMQ_TOKEN")
)
"""Variables that the command reads for itself."""
_OTHER_PROCESSES: Final = ("BMQ_HOOK_", "BMQ_OPERATOR_", "BMQ_PROBE_")
_UNKNOWN_MAX: Final = 20
_OF_A_SERVICE: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_[0-9]|$)", re.ASCII)
"""What Kubernetes sets for each Service whose name begins with bmq."""
_NEARLY: Final = 0.85
_SHOWN_MAX: Final = 80
_FILE_BYTES_MAX: Final = 1 << 20
"""Whoever names a device or a dump of something is told so, and not read until memory ends."""


def read_config(
    flags: Mapping[str, Any],
    file: Path | None = None,
    *,
    host_name: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ServerConfig:
    """The configuration from the flags that were given (by key), the environment, and the file; on this host, or one of
    that name.

    Raises ConfigurationError: one line that names the key as it was given, its value and the remedy.
    """
    in_file = _read_file(file) if file is not None else {}
    variables = {name.upper(): value for name, value in environment.items() if name.upper().startswith(PREFIX)}
    _check_variables(variables)

    here = socket.gethostname() if host_name is None else host_name

    class Sourced(ServerConfig):
        @model_validator(mode="before")
        @classmethod
        def _placed(cls, given: dict[str, Any]) -> dict[str, Any]:
            return on_host(given, here, node_id_max=NODE_ID_MAX)

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            in_environment = [env_settings] if environment else []
            return init_settings, *in_environment, InitSettingsSource(settings_cls, init_kwargs=in_file)

    try:
        return Sourced(**flags)
    except ValidationError as error:
        raise ConfigurationError(
            _one_line(error, flags=flags, variables=variables, in_file=in_file, file=file)
        ) from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_FILE_BYTES_MAX + 1)
        if len(content) > _FILE_BYTES_MAX:
            raise ConfigurationError(
                f"--config {file}: it has more than {_FILE_BYTES_MAX} bytes: name a YAML file of lines KEY: VALUE"
            )
        found = yaml.load(content.decode(), _Strict)
    except OSError as error:
        raise ConfigurationError(
            f"--config {file}: {(error.strerror or 'cannot be read').lower()}: name a readable YAML file"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"--config {file}: it is nested too deeply: write lines of KEY: VALUE") from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark is not None else "it"
        if isinstance(error, yaml.constructor.ConstructorError) and error.problem.endswith("twice"):
            raise ConfigurationError(f"--config {file}: {where}: {error.problem}: leave one of them out") from None
        raise ConfigurationError(f"--config {file}: {where} is not YAML: write lines of KEY: VALUE") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"--config {file}: it is a {type(found).__name__}: write lines of KEY: VALUE")
    for key in found:
        if key not in ServerConfig.model_fields:
            near = _nearest(str(key), ServerConfig.model_fields)
            raise ConfigurationError(
                f"{key} in {file}: there is no such key: {f'did you mean {near}?' if near else f'{PAGE} has all'}"
            )
    return {key: value for key, value in found.items() if value is not None}


class _Strict(yaml.SafeLoader):  # type: ignore[misc]
    """YAML lets the last one of two equal keys count, and so hides a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _check_variables(variables: Mapping[str, str]) -> None:
    """A variable whose name is nearly a key's is a typing error; others with the prefix may be anybody's."""
    known = [*map(variable_of, ServerConfig.model_fields), *OTHER_VARIABLES]
    for name, value in variables.items():
        if name not in known and not _OF_A_SERVICE.search(name) and (near := _nearest(name, known, cutoff=_NEARLY)):
            raise ConfigurationError(f"{name} {_shown(value)}: there is no such key: did you mean {near}?")


def unknown_variables() -> list[str]:
    """Names with the prefix that are no key and nobody's that is known: somebody may have meant one. Without values,
    which may be secrets.
    """
    known = {*map(variable_of, ServerConfig.model_fields), *OTHER_VARIABLES}
    named = sorted(name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in known)
    return [
        name
        for name in named
        if not _OF_A_SERVICE.search(name.upper()) and not name.upper().startswith(_OTHER_PROCESSES)
    ][:_UNKNOWN_MAX]


def _one_line(
    error: ValidationError,
    *,
    flags: Mapping[str, Any],
    variables: Mapping[str, str],
    in_file: Mapping[str, Any],
    file: Path | None,
) -> str:
    """What is said of the first of the values that cannot be used."""
    first = error.errors()[0]
    own = str(first["ctx"]["error"]) if first["type"] == "value_error" else None
    if not first["loc"]:
        assert own is not None
        return own
    key = str(first["loc"][0])
    if first["type"] == "missing":
        other = f" (or {BASE})" if key == NODE_ID else ""
        return (
            f"{key} is missing: {about(key, 'remedy')}, by {flag_of(key)}, {variable_of(key)} or {key} in the "
            f"file of --config{other}"
        )
    if key in flags:
        source, value = flag_of(key), flags[key]
    elif variables.get(variable_of(key)):
        source, value = variable_of(key), variables[variable_of(key)]
    else:
        source, value = f"{key} in {file}", in_file.get(key)
    return f"{source} {own}" if own is not None else f"{source} {_shown(value)}: {about(key, 'remedy')}"


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return repr(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")


def _nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)
