"""What torch has of files and versions: torch.hub's folder, model_zoo, __config__, storage."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlparse

from sluice import _C, hub
from sluice._tensor.storage import TypedStorage, UntypedStorage
from sluice.mock_torch._private.made import module


def _home() -> str:
    """The folder in which torch keeps what it loads."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def _load_url(url: str, model_dir: Any = None, *args: Any, **options: Any) -> Any:
    """sluice.hub's function, with the folder in which torch keeps such files."""
    return hub.load_state_dict_from_url(url, model_dir or os.path.join(_home(), "hub", "checkpoints"), *args, **options)


def _tqdm(*args: Any, **kwargs: Any) -> Any:
    import tqdm

    return tqdm.tqdm(*args, **kwargs)


MODULES = {
    "torch.__config__": module("torch.__config__", show=lambda: f"Sluice {_C.__version__}", parallel_info=lambda: ""),
    "torch.hub": module("torch.hub"),
    "torch.storage": module("torch.storage", UntypedStorage=UntypedStorage, TypedStorage=TypedStorage),
    "torch.torch_version": module("torch.torch_version", TorchVersion=str),
    "torch.utils.model_zoo": module("torch.utils.model_zoo", load_url=_load_url, tqdm=_tqdm),
}
MEMBERS = {"torch": {"TypedStorage": TypedStorage, "storage": MODULES["torch.storage"]},
           "torch.hub": {"_get_torch_home": _home, "load_state_dict_from_url": _load_url, "HASH_REGEX": re.compile(r"-([a-f0-9]*)\."),
                         "urlparse": urlparse}}
