"""What every job's batch has: places of records in topics, rows of records, what is left for the dead letters, and why
it failed.
"""
