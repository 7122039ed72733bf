"""The command `bmq-operator`."""


def run() -> None:
    """Runs the operator until it is stopped."""
    raise SystemExit("not here yet")
