"""What a node is told over its store, by what kind of store that is."""

from bmq.runtime.store_url import StoreKind, parse_store_url
from bmq_node.configuration.node_settings import NodeSettings, node_settings
from bmq_node.configuration.server_config import ServerConfig


def settings_of(config: ServerConfig) -> NodeSettings:
    """What the process is told over its store. Raises ConfigurationError for a URL that cannot be used."""
    store = parse_store_url(config.store)
    return node_settings(
        config,
        one_disk=store.kind in (StoreKind.FILE, StoreKind.MEMORY),
        log_dir=str(store.folder) if store.folder is not None else config.store.partition("?")[0],
    )
