"""What torch has of files and versions: torch.hub's folder, model_zoo, __config__, storage."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlparse

from sluice import _C
from sluice._tensor.storage import UntypedStorage
from sluice.mock_torch._private.made import module
from sluice.mock_torch._private.refused import refused_module
from sluice.serialization import load


def _home() -> str:
    """The folder in which torch keeps what it loads."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def _load_url(url: str, model_dir: Any = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
              file_name: Any = None, weights_only: bool = True) -> Any:
    """The state of a file that is there already: nothing is fetched."""
    path = os.path.join(model_dir or os.path.join(_home(), "hub", "checkpoints"), file_name or os.path.basename(url.partition("?")[0]))
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub: {path} is not there, and Sluice downloads nothing: fetch {url} to it")
    return load(path, weights_only=weights_only)


def _tqdm(*args: Any, **kwargs: Any) -> Any:
    import tqdm

    return tqdm.tqdm(*args, **kwargs)


MODULES = {
    "torch.__config__": module("torch.__config__", show=lambda: f"Sluice {_C.__version__}", parallel_info=lambda: ""),
    "torch.hub": module("torch.hub"),
    "torch.storage": refused_module("torch.storage", UntypedStorage=UntypedStorage),
    "torch.torch_version": module("torch.torch_version", TorchVersion=str),
    "torch.utils.model_zoo": module("torch.utils.model_zoo", load_url=_load_url, tqdm=_tqdm),
}
MEMBERS = {"torch.hub": {"_get_torch_home": _home, "load_state_dict_from_url": _load_url, "HASH_REGEX": re.compile(r"-([a-f0-9]*)\."),
                         "urlparse": urlparse}}
