"""Topics as tables, by PySpark: jobs, the tables that they keep, and a data source that reads segments from the
bucket.
"""
