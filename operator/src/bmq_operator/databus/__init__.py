"""Sidecars of Databus in the pods of applications: the webhook that injects them, its certificate, their upgrades."""
