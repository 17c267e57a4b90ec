"""Tells what this installation runs on and with: `python -m sluice.info`, to paste into a bug report.

No user names, host names or paths are in it. `functions()` lists the public functions. `python -m sluice.info explain CODE`
says what an error means.
"""

import json as _json
import platform as _platform
import sys as _sys

from sluice import _C
from sluice._C import log_spec, set_log
from sluice._base.troubles import explain

__all__ = ["as_dict", "describe", "explain", "functions", "kernel_trials", "kernels", "log_spec", "set_log"]


def _libraries():
    import numpy

    return [("Python", _platform.python_version()), ("NumPy", numpy.__version__)]


def describe(json=False):
    """Versions, build, machine, devices and settings as text in sections, or as one JSON object."""
    return _C.describe(json, _libraries())


def as_dict():
    """The same as a dict of sections: `as_dict()["libraries"]["oneDNN"]`."""
    return _json.loads(describe(json=True))


def kernels():
    """Counters of the prepared kernels that eager calls and graphs share, as a dict: `hits` and `misses` (found; prepared),
    `prepare_ms` that the misses took, `entries` kept now and the `bytes` these hold, as far as it is known."""
    return _C.kernel_stats()


def kernel_trials():
    """Counters of the search for the fastest implementations (`graph.config.enable_kernel_trial_run`), as a dict: `searches` that were
    run here, choices `read` from disk, `hits` (known to the process already), `entries` kept now."""
    return _C.kernel_trial_stats()


def functions():
    """The reference of public functions, methods and operators, in the order of their names: (name, signatures in torch's
    notation, documentation) of each, as "sluice.add", "sluice.Tensor.add_", "sluice.nn.functional.relu"."""
    modules = [m for m in vars(_C).values() if isinstance(m, type(_C))]
    members = [f for owner in (*modules, _C.Tensor) for f in vars(owner).values() if hasattr(type(f), "signatures")]
    return sorted((f"{f.__module__}.{f.__qualname__}", f.signatures, f.__doc__) for f in members)


def main(arguments=None):
    import argparse

    parser = argparse.ArgumentParser(prog="python -m sluice.info", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--functions", action="store_true", help="the reference of public functions instead")
    parser.add_argument("words", nargs="*", metavar="explain CODE", help="what an error means: its code, or a part of its text")
    options = parser.parse_args(arguments)
    if options.words:
        if options.words[0] != "explain" or len(options.words) == 1:
            parser.error(f"got {' '.join(options.words)!r}; must be explain CODE, or explain TEXT")
        try:
            _sys.stdout.write(explain(" ".join(options.words[1:])))
        except LookupError as error:
            parser.exit(1, f"{error.args[0]}\n")
    elif options.functions:
        _sys.stdout.writelines(f"{name}\n    {doc.strip()}\n".replace("\n\n", "\n").replace("\n", "\n    ").rstrip() + "\n"
                               for name, _, doc in functions())
    else:
        _sys.stdout.write(describe(json=options.json))


if __name__ == "__main__":
    main()
