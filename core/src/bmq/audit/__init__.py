"""Audits a store: reads what is there, says what is wrong and what it means, and mends what can be mended. Reads
through bmq.ports alone.
"""
