"""Passes over fx graphs."""

from sluice.fx.passes import shape_prop as shape_prop
