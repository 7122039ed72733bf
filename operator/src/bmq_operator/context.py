"""What a `reconcile` may use of the world outside."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bmq.ports import Clock, Rng
from bmq_operator.known import Known
from bmq_operator.kube import Kube
from bmq_operator.settings import OperatorSettings

if TYPE_CHECKING:
    from bmq_admin.client import AdminClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The API server, the clock, the REST APIs of clusters, and what is known of the moment."""

    kube: Kube
    settings: OperatorSettings
    clock: Clock
    rng: Rng
    admin: "Callable[[str, str], AdminClient]"
    """The client of an admin REST API: (base URL, token). One for each pair, closed by the operator."""
    namespace_ending: bool = False
    """Whether the resource is being deleted, and its namespace with it. Data stays then, and nothing is waited for."""
    known: Known = field(default_factory=Known)
    """What was read within the last seconds, for all resources that need it."""
