"""Command-line programs that come with Sluice."""

import os
import shutil
import subprocess
import sys


def find_tool(name: str) -> str:
    """The path of a program: in the wheel or the build this module lies in (built first when missing), or on PATH."""
    from sluice import _C

    package = os.path.dirname(os.path.realpath(_C.__file__))
    build = os.path.dirname(os.path.dirname(package))
    candidates = [os.path.join(package, "bin", name), *(os.path.join(build, folder, name) for folder in ("tools", "examples", "bin"))]
    in_build = os.path.isfile(os.path.join(build, "CMakeCache.txt"))
    if in_build and not any(map(os.path.isfile, candidates)):
        subprocess.run(["cmake", "--build", build, "--target", name], check=True)
    path = next(filter(os.path.isfile, candidates), None) or shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name}: not found in {package}, {build} nor on PATH; build it with 'make build'")
    return path


def plan_viz() -> None:
    """The console script of the wheel: its own plan-viz, with the arguments as given."""
    program = find_tool("plan-viz")
    os.execv(program, [program, *sys.argv[1:]])
