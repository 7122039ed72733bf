"""What is said of transactions, which this version of bmq does not serve."""

from typing import Final

TRANSACTION_REFUSED: Final = "transactional producer refused: this version of bmq has no transactions"
"""The line of the log: most clients show their user no more than a code."""
