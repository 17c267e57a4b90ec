"""python -m sluice.trainer config.yaml [key=value ...]: trains what a file says, alone or as a rank of a job."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from sluice import distributed as dist
from sluice.trainer import ProgressBar, Trainer, load
from sluice.trainer._config import save


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sluice.trainer", description="Trains what a configuration says. It names functions, "
                                     "which are called: run no file that you do not trust.")
    parser.add_argument("config", help="a file of YAML")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as train.steps=100")
    parser.add_argument("--evaluate", action="store_true", help="only evaluate the newest checkpoint")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_intermixed_args(arguments)
    sys.path.insert(0, os.path.dirname(os.path.abspath(options.config)))  # what it names may lie beside it
    place = dist.init()
    config = load(options.config, options.overrides)
    trainer = Trainer(config)
    if place.rank == 0:
        save(config, os.path.join(config.out, "config.yaml"))
    if not options.quiet:
        trainer.hooks.append(ProgressBar())
    if not options.evaluate:
        trainer.train()
    if trainer.evaluators:
        metrics = trainer.results or trainer.evaluate()
        if place.rank == 0:
            print(json.dumps({"step": trainer.step, **metrics}))
    dist.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main())
