"""The `bmq` command."""


def run() -> None:
    """Entry point of the console script."""
