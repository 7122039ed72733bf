"""What was accepted and is not in the cluster yet, on disk: one folder for each channel (docs/formats/spool.md).

`frames` and `done` are pure; `segments` reads and writes the files, `channel_spool` is what others use.
"""
