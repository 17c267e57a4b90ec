"""Command-line tools that come with Sluice."""

import os
import shutil


def find_tool(name):
    """The path of a tool: beside the module in a build, or on PATH."""
    import sluice

    here = os.path.dirname(os.path.realpath(sluice._C.__file__))
    build = os.path.dirname(os.path.dirname(here))
    candidates = [os.path.join(build, "bin", name), os.path.join(build, "tools", name),
                  os.path.join(build, "tools", name.replace("-", "_"), name)]
    for path in candidates:
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: not found beside {here} nor on PATH; build it with 'make build'")
    return found
