"""Tails that are followed: an owner's sessions, and what their followers keep."""
