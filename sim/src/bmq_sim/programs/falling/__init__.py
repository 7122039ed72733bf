"""A lane whose messages go on to the base while nobody in it consumes: consumers come and go in it all the time, alone
and as members of a group, and each message is handled once, in the lane or in the base.
"""
