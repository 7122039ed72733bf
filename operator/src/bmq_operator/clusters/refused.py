"""Why a Cluster cannot be as its spec says."""

from bmq_operator.conditions import Finding


class NotToBe(Exception):
    """The Cluster cannot be as its spec says. `finding` says why and what helps; nothing of it is changed."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


def not_to_be(reason: str, message: str) -> NotToBe:
    """With a condition Ready that is False."""
    return NotToBe(Finding(status="False", reason=reason, message=message))
