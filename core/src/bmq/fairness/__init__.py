"""Whose turn it is, and how much anybody may have of what all share."""
