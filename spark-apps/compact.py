"""Keeps a Parquet table small in files: see docs/tables.md, or `--help`."""

import sys

from bmq_spark.jobs.compact import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
