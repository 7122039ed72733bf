"""What was accepted and is not in the cluster yet, on disk: one folder for each channel (docs/formats/spool.md).

`frames` and `done` are pure; `segments` reads and writes the files, `undone` and `reading` say what waits in them, for
a sidecar (`channel_spool`) and for tools that look on.
"""
