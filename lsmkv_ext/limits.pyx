"""Limits of keys, values and trees, for the control plane."""
