"""python -m sluice.mock_torch script.py [arguments]: runs a script whose `import torch` gets Sluice."""

import argparse
import os
import runpy
import sys

from sluice.mock_torch import enable


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m sluice.mock_torch",
                                     description="Runs a script, or a module, in which `import torch` gets Sluice.")
    parser.add_argument("--lazy", action="store_true", help="modules of torch that Sluice lacks can be imported, but not used")
    parser.add_argument("--verbose", action="store_true", help="print what is imported of torch")
    parser.add_argument("-m", dest="module", action="store_true", help="the name is a module's")
    parser.add_argument("script", help="a file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")
    options = parser.parse_args()
    sys.argv = [options.script, *options.arguments]
    enable(options.lazy, options.verbose)
    if options.module:
        sys.path[0] = os.getcwd()
        runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(options.script))
        runpy.run_path(options.script, run_name="__main__")


main()
