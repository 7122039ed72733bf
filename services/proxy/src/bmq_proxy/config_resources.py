"""Configuration resources as the protocol numbers them, and as the controller names them."""

from bmq.errors import RequestError
from bmq.roles.controller import ConfigResource
from bmq_proxy.proxy import Proxy
from bmq_proxy.topics import find_topic, proxies_of

TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
GROUP = 32


def config_resource(proxy: Proxy, resource_type: int, name: str) -> ConfigResource:
    """Raises UnknownTopic, RequestError. Every key is cluster-wide: a broker by its id means all of them."""
    match resource_type:
        case 2:
            return ConfigResource(kind="topic", name=find_topic(proxy.image, name).name)
        case 4:
            proxies = proxies_of(proxy, proxy.image)
            if name not in ("", *map(str, proxies.by_id)):
                known = ", ".join(map(str, proxies.by_id))
                raise RequestError(
                    f"broker {name!r} is none of those that Metadata names ({known}); leave it empty for all brokers"
                )
            return ConfigResource(kind="broker", name="")
        case 8:
            raise RequestError("log levels are not set through the protocol: they are settings of each process")
        case 32:
            return ConfigResource(kind="group", name=name)
        case _:
            raise RequestError(
                f"resource type {resource_type} has no configuration here; topics (2), brokers (4) and groups (32) have"
            )
