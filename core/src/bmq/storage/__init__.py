"""Formats of stored objects, and the two kinds of object logs. Formats are pure; the logs do their I/O through
ports.ObjectStore.
"""
