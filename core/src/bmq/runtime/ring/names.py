"""Keys by the folders that they are in. Pure."""


class Names:
    """Those of a ring's records."""

    def __init__(self) -> None:
        self._of_folders: dict[str, set[str]] = {}
        """Folders end with a slash, but for the empty one."""

    def add(self, key: str) -> None:
        """One more."""
        folder, slash, name = key.rpartition("/")
        self._of_folders.setdefault(folder + slash, set()).add(name)

    def discard(self, key: str) -> None:
        """It was there."""
        folder, slash, name = key.rpartition("/")
        names = self._of_folders[folder + slash]
        names.remove(name)
        if not names:
            del self._of_folders[folder + slash]

    def below(self, folder: str) -> set[str]:
        """What is in the folder; the names of folders end with a slash."""
        found = set(self._of_folders.get(folder, ()))
        for one in self._of_folders:
            if one.startswith(folder) and one != folder:
                found.add(one[len(folder) :].partition("/")[0] + "/")
        return found
