"""A second driver, in a process of its own: begins a batch, says so, and goes on when it is told to.

`python iceberg_driver.py WAREHOUSE TABLE FOLDER`: with `FOLDER/slept` it says that all is written, `FOLDER/go on` tells
it to commit. It prints what became of it.
"""

import sys
from pathlib import Path

from iceberg_batches import Record, batch, settings, typing
from tests.waiting import until

from bmq_spark.errors import JobStopped
from bmq_spark.iceberg.catalogs import Catalog, TableName
from bmq_spark.jobs.iceberg_sink import IcebergSink
from bmq_spark.session import open_session

WAIT_S = 600


def main(warehouse: str, table: str, folder: str) -> None:
    name = TableName.parse(table)
    catalog = Catalog(name=name.catalog, kind="hadoop", warehouse=warehouse, uri=None)
    spark = open_session(
        "a second driver", settings={"spark.master": "local[1]", "spark.driver.memory": "512m", **catalog.settings({})}
    )

    def sleep() -> None:
        Path(folder, "slept").touch()
        until(Path(folder, "go on").exists, "the word to go on", WAIT_S)

    records = [Record(offset=offset, value=b"of the second driver") for offset in range(3)]
    try:
        print(IcebergSink(spark, name, typing(), settings()).add(batch(spark, 0, records, verify=sleep)))
    except JobStopped as error:
        print(error)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
