"""What a request is, however it came: who sends it and to which channel, what it may hold, what is written of it, and
which of them come again.
"""
