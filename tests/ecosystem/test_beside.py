"""A process holds packages in one version."""

import sys
import types

import pytest

from ecosystem import beside


def test_another_version_in_the_process_is_refused(monkeypatch):
    other = types.ModuleType("transformers")
    other.__file__ = "/elsewhere/transformers/__init__.py"
    monkeypatch.setitem(sys.modules, "transformers", other)
    with pytest.raises(ImportError, match="ecosystem: transformers: this process has imported /elsewhere/.*in a process of its own"):
        beside.modules("einops")
