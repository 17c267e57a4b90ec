"""What this installation runs on and with: `python -m sluice.info`, to paste into a bug report.

No user names, host names or paths are in it.
"""

import json as _json
import platform as _platform
import sys as _sys

from sluice import _C
from sluice._C import log_spec, set_log

__all__ = ["as_dict", "describe", "log_spec", "set_log"]


def _libraries():
    import numpy

    return [("Python", _platform.python_version()), ("NumPy", numpy.__version__)]


def describe(json=False):
    """Versions, build, machine, devices and settings as text in sections, or as one JSON object."""
    return _C.describe(json, _libraries())


def as_dict():
    """The same as a dict of sections: `as_dict()["libraries"]["oneDNN"]`."""
    return _json.loads(describe(json=True))


def main(arguments=None):
    import argparse

    parser = argparse.ArgumentParser(prog="python -m sluice.info", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    _sys.stdout.write(describe(json=parser.parse_args(arguments).json))


if __name__ == "__main__":
    main()
