"""The controller's decisions: (image, time, request) → (records, result), one file per noun. Pure: no I/O, no clock, no
state of their own.

A decision that refuses raises RequestError. Nothing here changes the image: only the records do, once they are
committed.
"""
