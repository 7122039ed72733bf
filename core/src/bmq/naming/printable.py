"""Text of strangers as it may be shown: names, client ids and reasons may hold what a terminal takes for commands.
Pure.
"""


def printable(text: str, *, keep: str = "", chars_max: int | None = None) -> str:
    """The text with each character that cannot be seen written as an escape, but for those to `keep`; cut where it is
    longer than `chars_max`.
    """
    cut = ""
    if chars_max is not None and len(text) > chars_max:
        text, cut = text[:chars_max], f"… ({len(text)} characters)"
    if text.isprintable():
        return text + cut
    return "".join([one if one.isprintable() or one in keep else escaped(one) for one in text]) + cut


def escaped(character: str) -> str:
    """As JSON and Python write it."""
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"
