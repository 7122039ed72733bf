"""The jobs: what they read, how they know their place, and what they do when something is wrong."""
