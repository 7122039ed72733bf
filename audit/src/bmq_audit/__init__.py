"""Audits a store: reads what is there, says what is wrong and what it means, and repairs what can be repaired."""
