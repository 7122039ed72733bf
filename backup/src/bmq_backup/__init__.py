"""Copies of a store, made while a cluster works on it: what a crash at one moment would have left."""
