"""The ways in which results can be printed."""

import enum


class OutputFormat(enum.StrEnum):
    """`-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
