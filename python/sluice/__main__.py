"""python -m sluice: the version, and what comes along."""

import os

from sluice import _C


def main() -> None:
    print(f"""Sluice {_C.__version__}: an actor-model dataflow execution engine for deep learning.

  import sluice as torch          torch's names, eagerly; sluice.nn.Graph compiles a network into a plan of actors
  python -m sluice.info           versions, devices, cores, memory and build options, for a bug report
  plan-viz COMMAND FILE|BUNDLE    views of a plan: show, mem, dot, svg, html and more (plan-viz --help)
  sluice.testing                  actors alone, recorded registers, assert_close

Sluice is in {os.path.dirname(os.path.abspath(__file__))}""")


if __name__ == "__main__":
    main()
