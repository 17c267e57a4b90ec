"""Modules: small configurations of each, and what they are called with."""
from __future__ import annotations
from typing import Any
MODULES: dict[str, Any] = {}
def module_case(*a: Any) -> Any: ...

