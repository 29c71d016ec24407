"""The extension modules of the runner."""
