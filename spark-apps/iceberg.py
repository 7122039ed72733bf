"""Topics as an Iceberg table: see docs/tables.md, or `--help`."""

import sys

from bmq_spark.jobs.iceberg import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
