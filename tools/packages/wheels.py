#!/usr/bin/env python3
"""Builds the wheels, in dist/: `make wheel`. There is one of Sluice, and one of its CUDA backend where CUDA's headers are.

They are for the Python that runs this program. --python adds others: `make wheel PYTHONS="3.12 3.13"`, or PYTHONS=all.

The needs of a wheel from the system say on which systems it runs. auditwheel reads them, and the platform tag becomes what
auditwheel says: manylinux. A wheel that needs a library that such systems do not have is an error.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSIONS = ("3.11", "3.12", "3.13")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          # CC and CXX as the other builds call them, so that the compiler cache knows the objects.
                          env={"CC": "cc", "CXX": "c++", **os.environ})
    if done.returncode:
        sys.exit(f"wheels: {' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def platform_of(wheel, beside):
    """The tag of the systems that have what it needs, with another wheel beside it: "manylinux_2_36_x86_64"."""
    with tempfile.TemporaryDirectory() as folder:
        both = shutil.copy(beside or wheel, folder)
        if beside:
            with zipfile.ZipFile(wheel) as its, zipfile.ZipFile(both, "a") as into:
                for name in its.namelist():
                    if ".dist-info/" not in name:
                        into.writestr(name, its.read(name))
        told = re.sub(r"\s+", " ", run(sys.executable, "-m", "auditwheel", "show", both))
    tag = re.search(r'following platform tag: "([\w.]+)"', told)
    if not tag or not tag[1].startswith("manylinux"):
        sys.exit(f"wheels: {wheel.name}: it needs what other systems do not have:\n{told}")
    return tag[1]


def version_of(python):
    """(3, 12) of an interpreter; None: there is none that works."""
    words = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    found = shutil.which(python) and subprocess.run(words, capture_output=True, text=True)
    return tuple(map(int, found.stdout.split())) if found and found.returncode == 0 else None


def interpreter(version):
    """The program of a version that a user named."""
    name = f"python{version}"
    if re.fullmatch(r"3\.\d+", version) is None or version_of(name) != tuple(map(int, version.split("."))):
        sys.exit(f"wheels: --python: '{version}': there is no {name} that works; must be the version of one that is installed, such as 3.12")
    return name


def installed():
    """Versions of Python for which Sluice is tested, but for the one that runs this program."""
    return [version for version in VERSIONS
            if (found := version_of(f"python{version}")) is not None and found != sys.version_info[:2]]


@contextlib.contextmanager
def builder(version):
    """A Python of this version that can build wheels; '': the one that runs this program."""
    if not version:
        yield sys.executable
        return
    with tempfile.TemporaryDirectory() as folder:
        run(interpreter(version), "-m", "venv", folder)
        python = f"{folder}/bin/python"
        needs = re.search(r"^requires = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.M)[1]
        run(python, "-m", "pip", "install", "--quiet", *re.findall(r'"(.*?)"', needs))
        yield python


def build(source, out, python, beside=None):
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "pip", "wheel", source, "--no-build-isolation", "--no-deps", "-w", folder)
        wheel, = pathlib.Path(folder).glob("*.whl")
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform_of(wheel, beside), wheel)
        wheel, = pathlib.Path(folder).glob("*.whl")
        package, _, tag = wheel.name.split("-")[:3]
        for earlier in out.glob(f"{package}-*-{tag}-*.whl"):
            earlier.unlink()
        return pathlib.Path(shutil.move(wheel, out / wheel.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheels go")
    parser.add_argument("--python", nargs="*", default=[], metavar="VERSION",
                        help="wheels for these versions of Python, too, such as 3.12; all: for those that are installed")
    arguments = parser.parse_args()
    out, more = arguments.out.resolve(), installed() if arguments.python == ["all"] else arguments.python
    out.mkdir(parents=True, exist_ok=True)
    for version in more:
        interpreter(version)
    for version in ["", *more]:
        with builder(version) as python:
            wheels = [build(ROOT, out, python)]
            if "sluice_cuda_backend" in (ROOT / "build/wheel/build.ninja").read_text():
                wheels.append(build(ROOT / "python_bindings/cuda", out, python, beside=wheels[0]))
        for wheel in wheels:
            print(f"wheels: {wheel}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
