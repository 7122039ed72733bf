"""Small objects as records in files that are made beforehand (docs/formats/ring.md).

`format` ← `scan` (what is in a file), `blocks` (what is free of it), `names` (keys by folders) ← `ring` (the objects),
`files` (the files themselves) ← `view` (for who only looks), `unpacking` (for who does without). Blocking.
"""
