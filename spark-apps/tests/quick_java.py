"""How the tests start JVMs of Spark, of which each does little: it compiles little, and takes its classes from an archive
where there is one (`make verify` makes it, by archived_classes.py).
"""

from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(__file__).parents[2] / ".cache" / "spark" / "classes.jsa"
OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""The room for compiled code is what it would be with all compilers: with one it is 48 MB, which the JVM of a run fills
in two minutes, and then compiles the same again and again (an eighth of its time)."""
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"
"""An archive that does not fit is a warning on the standard output, and the JVM goes on without it."""


def java_options() -> str:
    """What JDK_JAVA_OPTIONS is to be."""
    return f"{OPTIONS} -XX:SharedArchiveFile={ARCHIVE} {_QUIET}" if ARCHIVE.exists() else OPTIONS


def archiving_options() -> str:
    """The same of the JVM whose classes are archived, at its end."""
    return f"{OPTIONS} -XX:ArchiveClassesAtExit={ARCHIVE} {_QUIET}"
