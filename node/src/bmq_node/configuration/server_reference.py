"""Writes docs/server-configuration.md from the keys themselves: `python -m bmq_node.configuration.server_reference
>docs/server-configuration.md`.
"""

import sys
from typing import Any, Final

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bmq_node.configuration.server_config import GROUPS, ServerConfig, about, flag_of, variable_of
from bmq_node.configuration.values import size_text

_INTRODUCTION: Final = """\
# The configuration of `bmq server`

<!-- Written by `python -m bmq_node.configuration.server_reference >docs/server-configuration.md`: change server_config.py, not this page. -->

`bmq server` runs one process of a cluster, with one role or several. Each key may be given in three ways; the first one that is given counts:

1. as a flag: `--node-id 7`
2. as an environment variable: `BMQ_NODE_ID=7`; an empty one counts as not given, one that is no key is told in the log,
   and one that nearly is a key is refused
3. in the YAML file that `--config FILE` names: `node_id: 7`

A key or value that cannot be used is told in one line with a remedy, and the exit code is 2. Sizes are bytes, or have a unit (`64MiB`); times are
in milliseconds.

A broker of a cluster over MinIO:

```yaml
# broker.yaml
roles: broker
node_id: 101
store: s3://bmq?endpoint=http://minio:9000
internal_listen: 0.0.0.0:9190
advertised_internal: broker-101.bmq:9190
admin: 0.0.0.0:9080
cluster_config:
  num.partitions: 6
```

    AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… bmq server --config broker.yaml

`bmq up --nodes 1c3b2p` starts such processes on one machine.

The pods of a StatefulSet share one file, and their names say who each of them is; what is secret comes as variables. In the pod `bmq-proxy-3` this is
node 10003, which clients reach at `bmq-proxy-3.bmq-nodes.prod.svc:9092`:

```yaml
# /etc/bmq/server.yaml
roles: proxy
node_id_base: 10000
store: s3://bmq?endpoint=http://minio:9000
listen: "*:9092"
advertised_listen: "{hostname}.bmq-nodes.prod.svc:9092"
internal_listen: "*:9190"
advertised_internal: "{hostname}.bmq-nodes.prod.svc:9190"
admin: "*:9080"
```

    BMQ_CLUSTER_SECRET=… BMQ_ADMIN_TOKEN=… AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=… bmq server --config /etc/bmq/server.yaml

Of the host `*` a process listens on all addresses, IPv4 and IPv6, whichever the machine has; `0.0.0.0` means those of IPv4, `[::]` those of IPv6.
"""


def server_reference() -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *(_table(group) for group in GROUPS)])


def _table(group: str) -> str:
    rows = [_row(key, field) for key, field in ServerConfig.model_fields.items() if about(key, "group") == group]
    return (
        "\n".join(
            [f"## {group}", "", "| key | flag, variable | default | meaning |", "| --- | --- | --- | --- |", *rows]
        )
        + "\n"
    )


def _row(key: str, field: FieldInfo) -> str:
    remedy = str(about(key, "remedy"))
    meaning = f"{field.description} {remedy[0].upper()}{remedy[1:]}.".replace("|", "\\|")
    return f"| `{key}` | `{flag_of(key)}`<br>`{variable_of(key)}` | {default_text(key, field)} | {meaning} |"


def default_text(key: str, field: FieldInfo) -> str:
    """The default as the page and the command's help show it."""
    default: Any = field.default
    if default is PydanticUndefined:
        return "must be given"
    if about(key, "size"):
        return f"`{size_text(default)}`"
    if isinstance(default, tuple):
        return f"`{','.join(default)}`"
    return f"`{default}`" if default not in ("", {}, None) else "empty"


if __name__ == "__main__":
    sys.stdout.write(server_reference())
