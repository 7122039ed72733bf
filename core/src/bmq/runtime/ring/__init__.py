"""Small objects as records in files that are made beforehand (docs/formats/ring.md).

`format` ← `scan` (what is in a file), `blocks` (what is free of it) ← `ring` (the objects) ← `files` (the files
themselves), `view` (for who only looks). Blocking.
"""
