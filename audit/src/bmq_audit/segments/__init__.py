"""Segments, read byte by byte: of one partition, and those that several share."""
