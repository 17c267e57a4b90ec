"""Tensors: how they are made, their methods and state, and functions of them that no form says."""
