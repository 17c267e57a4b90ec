"""What the tests of programs share: how they are run and asked."""

import json
import subprocess
import urllib.error
import urllib.request

import pytest

from programs import PATIENCE, save
from sluice._base.tools import find_tool


def run(*arguments, program="sluice-serve"):
    done = subprocess.run([find_tool(program), *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, done.stdout, done.stderr


def ask(url, data=None, method=None):
    """Status and body of a request; JSON where it is some."""
    request = urllib.request.Request(f"http://{url}", None if data is None else json.dumps(data).encode(), method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            status, body = response.status, response.read()
    except urllib.error.HTTPError as e:
        status, body = e.code, e.read()
    return status, json.loads(body) if body.startswith((b"{", b"[")) else body.decode()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return folder, save(folder)
