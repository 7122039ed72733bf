"""Connections between nodes: who calls, who answers, and what becomes of calls when one ends."""
