"""Command-line programs that come with Sluice."""

import os
import shutil
import subprocess


def find_tool(name):
    """The path of a program: in the build this module lies in (built first when missing), or on PATH."""
    from sluice import _C

    build = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(_C.__file__))))
    candidates = [os.path.join(build, folder, name) for folder in ("tools", "examples", "bin")]
    in_build = os.path.isfile(os.path.join(build, "CMakeCache.txt"))
    if in_build and not any(map(os.path.isfile, candidates)):
        subprocess.run(["cmake", "--build", build, "--target", name], check=True)
    path = next(filter(os.path.isfile, candidates), None) or shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name}: not found in {build} nor on PATH; build it with 'make build'")
    return path
