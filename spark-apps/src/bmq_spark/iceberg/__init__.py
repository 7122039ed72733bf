"""Topics as Iceberg tables: which catalog, what a snapshot says of the topics, how schemas grow, how batches are
written and what is tidied up.

Iceberg's own log of snapshots is what makes a batch atomic: a batch is one snapshot, whose summary says up to where the
topics are in the table.
"""
