"""What nodes say to each other where roles live in several processes: frames, a server, clients, and the roles'
protocols over them.

`RemoteOwner` and `RemoteController` are what a proxy or a broker holds instead of the object itself; `owner_handlers`,
`controller_handlers`, `metadata_handlers` and `admin_handlers` are what an `InternalServer` serves. In one process none
of this is used.
"""

from bmq.internal.calls.admin_calls import ADMIN_REPLY_BYTES_MAX, admin_handlers, ask_node
from bmq.internal.framing.apis import Purpose
from bmq.internal.framing.failures import ConnectionLost, NotSent
from bmq.internal.framing.hello import Identity
from bmq.internal.links.client import InternalClient
from bmq.internal.links.server import InternalServer
from bmq.internal.remote.remote_controller import RemoteController
from bmq.internal.remote.remote_owner import RemoteOwner
from bmq.internal.serving.controller_handlers import LeadingController, controller_handlers, metadata_handlers
from bmq.internal.serving.owner_handlers import owner_handlers

__all__ = [
    "ADMIN_REPLY_BYTES_MAX",
    "ConnectionLost",
    "Identity",
    "InternalClient",
    "InternalServer",
    "LeadingController",
    "NotSent",
    "Purpose",
    "RemoteController",
    "RemoteOwner",
    "admin_handlers",
    "ask_node",
    "controller_handlers",
    "metadata_handlers",
    "owner_handlers",
]
