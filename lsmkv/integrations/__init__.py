"""Integrations: one module for each engine or library, which needs it installed. docs/scale.md describes them."""
