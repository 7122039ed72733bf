"""What spools have on disk, for people: shown, exported as lines of JSON, or written to a cluster without a sidecar.

`channels` says whose there are, `looking` reads without a change to any byte, also beside a sidecar; `replaying` takes
a channel's folder for itself, as a sidecar does.
"""
