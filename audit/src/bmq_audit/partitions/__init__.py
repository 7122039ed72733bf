"""One partition as an audit sees it: its manifests, what they name, and what is to be done where something is lost."""
