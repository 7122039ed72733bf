"""The sidecar that takes messages by HTTP."""
