"""Models from a directory with a hubconf.py, and states from addresses: torch.hub. Repositories are not downloaded."""

from __future__ import annotations

import hashlib
import http.client
import importlib
import importlib.util
import os
import re
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from sluice import _C, serialization
from sluice._base.replaced_file import replaced

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
    return _C.NotImplementedError(f"hub.{what}: repositories are not downloaded; fetch it with a tool of yours (git clone), and use "
                                  "source='local' of its directory")


_PATIENCE_S = 60  # without a byte from a server
_HASH = re.compile(r"-([a-f0-9]+)\.")  # of names as resnet18-f37072fd.pth


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _copied(response: Any, file: Any, url: str, progress: bool) -> str:
    """Writes what a server sends; returns its sha256. OSError where it is shorter or longer than the server has said."""
    said = response.headers.get("Content-Length")
    total = int(said) if said and said.isdigit() else None
    digest, n, shown = hashlib.sha256(), 0, -1
    while block := response.read(1 << 20):
        file.write(block)
        digest.update(block)
        n += len(block)
        if progress and total and sys.stderr.isatty() and (percent := 100 * n // total) != shown:
            shown = percent
            print(f"\r{url}: {percent} % of {total} bytes", end="\n" if n >= total else "", file=sys.stderr, flush=True)
    if total is not None and n != total:
        raise _C.OSError(f"hub.download_url_to_file: {url}: got {n} bytes; the server has announced {total}")
    return digest.hexdigest()


def download_url_to_file(url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True) -> None:
    """Gets a file over http or https. `dst` is there when all of it is, and is what it was if anything fails.

    hash_prefix: how its sha256 must begin, in hexadecimal. Raises OSError, which says what to do, for a server that cannot be
    reached or that sends less than it has announced, and ValueError for another scheme or another sha256.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise _C.ValueError(f"hub.download_url_to_file: got {url!r}; must be an http or https address")
    try:
        with replaced(dst) as file, urllib.request.urlopen(url, timeout=_PATIENCE_S) as response:
            got = _copied(response, file, url, progress)
            if hash_prefix and not got.startswith(hash_prefix.lower()):
                raise _C.ValueError(f"hub.download_url_to_file: {url}: its sha256 is {got}; must begin with {hash_prefix.lower()}")
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _C.OSError(f"hub.download_url_to_file: {url} cannot be had: {error}; fetch it with a tool of yours and put it at "
                         f"{os.fspath(dst)}") from error


def load_state_dict_from_url(url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None, weights_only: bool = True, *,
                             sha256: str | None = None) -> Any:
    """sluice.load of a file, which is downloaded once and kept in model_dir (by default get_dir()/checkpoints).

    check_hash: the name says how the file's sha256 begins (`resnet18-f37072fd.pth`), and that must hold. sha256: all of it, or how it
    begins; it must hold of a file that is there already, too. Otherwise as download_url_to_file.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(urlsplit(url).path))
    if not os.path.exists(path):
        named = _HASH.search(os.path.basename(path)) if check_hash else None
        os.makedirs(folder, exist_ok=True)
        download_url_to_file(url, path, sha256 or (named.group(1) if named else None), progress)
    elif sha256 is not None and not (got := _digest(path)).startswith(sha256.lower()):
        raise _C.ValueError(f"hub.load_state_dict_from_url: the sha256 of {path} is {got}; must begin with {sha256.lower()}: remove the "
                            "file, and it is downloaded again")
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
