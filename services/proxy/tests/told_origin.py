"""A connection without a network: what the proxy knows of it."""


class Origin:
    """It ends by `is_over`."""

    def __init__(self, peer: str = "10.0.0.1") -> None:
        self.peer = peer
        self.is_over = False
