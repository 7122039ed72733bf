"""How the operator is configured: variables `BMQ_OPERATOR_…`, each with a default that works inside Kubernetes."""

from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from bmq.errors import ConfigurationError
from bmq_operator.allowed import Allowed
from bmq_operator.databus_settings import DatabusSettings
from bmq_operator.spark_settings import SparkSettings


class OperatorSettings(BaseSettings):
    """The operator's settings."""

    model_config = SettingsConfigDict(env_prefix="BMQ_OPERATOR_", env_ignore_empty=True, frozen=True, extra="ignore")

    namespaces: Annotated[tuple[str, ...], NoDecode] = ()
    """Namespaces whose resources are looked after, with commas between; empty: all."""
    image: str = Field(default="bmq:latest", pattern=r"^[^\s:]+(:[0-9]+/[^\s:]+)?:[^\s:/]+(@sha256:[a-f0-9]{64})?$")
    """REPOSITORY:TAG, or REPOSITORY:TAG@DIGEST, of Clusters that name none: the operator's own."""
    namespace: str = "default"
    """The operator's own namespace: its Lease is there."""
    lease_name: str = "bmq-operator"
    """The Lease by which one of several operators leads."""
    identity: str = ""
    """How this operator calls itself in the Lease. Empty: the host's name."""
    listen: str = Field(default="0.0.0.0:8080", pattern=r"^[^\s]*:[0-9]{1,5}$")
    """Where /livez, /readyz and /metrics are served."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["", "console", "json"] = ""
    resync_seconds: float = Field(default=60, ge=1, le=3600)
    """How often every resource is looked at even though nothing was heard of it."""
    workers: int = Field(default=8, ge=1, le=64)
    """Resources that are worked on at a time."""
    spark: SparkSettings = SparkSettings()
    """How tables are written, as JSON: the chart's values `spark`."""
    allow: Allowed = Allowed()
    """What resources may use that is not their own, as JSON: the chart's values `allow`."""
    databus: DatabusSettings = DatabusSettings()
    """Whether and how pods get sidecars of Databus, as JSON: the chart's values `databus.injection`."""
    admin_url_template: str = "http://{name}-admin.{namespace}.svc:9080"
    """The admin REST API of a Cluster by {name} and {namespace}, or by {cluster_ip}, its Service's address, for an
    operator outside Kubernetes."""

    @field_validator("namespaces", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @property
    def databus_image(self) -> str:
        """What sidecars of Databus are started from."""
        return self.databus.image or self.image

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """Where to list: one empty string for all namespaces."""
        return self.namespaces or ("",)


def read_settings() -> OperatorSettings:
    """The settings from the environment. Raises ConfigurationError (one line: variable, value, remedy)."""
    try:
        return OperatorSettings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "BMQ_OPERATOR_" + str(first["loc"][0]).upper()
        raise ConfigurationError(
            f"{name}={first['input']!r} cannot be used: {first['msg']}. Correct it, or leave it out for the default"
        ) from None
