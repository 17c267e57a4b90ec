"""Models from a directory with a hubconf.py: torch.hub of local directories. Nothing is downloaded."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

from sluice import _C, serialization

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

_directory: str | None = None


def get_dir() -> str:
    """The folder in which models of hubs are kept: the one of set_dir(), or SLUICE_HOME/hub, or ~/.cache/sluice/hub."""
    if _directory is not None:
        return _directory
    home = os.environ.get("SLUICE_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "sluice")
    return os.path.join(os.path.expanduser(home), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Keeps models of hubs in directory d."""
    global _directory
    _directory = os.path.expanduser(os.fspath(d))


def _refused(what: str) -> Exception:
    return _C.NotImplementedError(f"hub.{what}: nothing is downloaded; fetch it with a tool of yours (git clone, curl), and "
                                  "use source='local' of "
                                  "its directory, or sluice.load of its file")


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Refused: nothing is downloaded."""
    raise _refused("download_url_to_file")


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = True) -> Any:
    """sluice.load of a file that is in model_dir (by default get_dir()/checkpoints) under its name; else refused."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(url.partition("?")[0]))
    if not os.path.exists(path):
        raise _C.NotImplementedError(f"hub.load_state_dict_from_url: nothing is downloaded, and {path} is not there; put the "
                                     f"file of {url} there")
    return serialization.load(path, map_location=map_location, weights_only=weights_only)


def _module(repo_or_dir: str | os.PathLike[str], source: str, what: str) -> Any:
    """The hubconf of a directory."""
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise _refused(what)
    directory = os.path.expanduser(os.fspath(repo_or_dir))
    path = os.path.join(directory, "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub.{what}: {path} is not there; the directory must have a hubconf.py")
    sys.path.insert(0, directory)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(directory)
    missing = [name for name in getattr(module, "dependencies", ()) if not _is_there(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _is_there(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _entry(module: Any, model: str) -> Any:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    function = getattr(module, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def load(repo_or_dir: str | os.PathLike[str], model: str, *args: Any, source: str = "github", trust_repo: Any = None,
         force_reload: bool = False, verbose: bool = True, skip_validation: bool = False, **kwargs: Any) -> Any:
    """model(*args, **kwargs) of the hubconf.py in a directory, with source="local"; its code is run.

    A hubconf that imports torch gets torch; within `with sluice.mock_torch():` it gets Sluice.
    """
    return _entry(_module(repo_or_dir, source, "load"), model)(*args, **kwargs)


def help(github: str | os.PathLike[str], model: str, force_reload: bool = False, skip_validation: bool = False,  # noqa: A001
         trust_repo: Any = None, source: str = "github") -> Any:
    """The documentation of an entry of a directory's hubconf.py; source="local"."""
    return _entry(_module(github, source, "help"), model).__doc__


def list(github: str | os.PathLike[str], force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = None,
         # noqa: A001
         verbose: bool = True, source: str = "github") -> Any:
    """The names of the entries of a directory's hubconf.py; source="local"."""
    module = _module(github, source, "list")
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]
