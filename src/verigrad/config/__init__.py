"""Typed configuration: TOML and overrides in, one checked value out."""
