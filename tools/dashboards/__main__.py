"""Writes the dashboards of Grafana: `python -m tools.dashboards charts/bmq/files/dashboards`."""

import json
import sys
from pathlib import Path

from tools.dashboards.cluster import CLUSTER_OVERVIEW
from tools.dashboards.databus import DATABUS
from tools.dashboards.groups import GROUPS
from tools.dashboards.lanes import LANES
from tools.dashboards.operator import OPERATOR
from tools.dashboards.proxy import PROXIES
from tools.dashboards.spark import SPARK
from tools.dashboards.store import BROKERS_AND_STORE

DASHBOARDS = (CLUSTER_OVERVIEW, BROKERS_AND_STORE, PROXIES, GROUPS, OPERATOR, LANES, DATABUS, SPARK)


def main(folder: Path) -> None:
    """A file each, named by its uid."""
    folder.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        text = json.dumps(dashboard.model(), indent=2, ensure_ascii=False)
        (folder / f"{dashboard.uid}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
