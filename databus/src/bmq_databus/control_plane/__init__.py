"""Channels as a control plane has them: followed while the sidecar runs, and remembered on disk."""
