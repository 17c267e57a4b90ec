#!/usr/bin/env python3
"""Builds the wheels, in dist/: `make wheel`. There is one of Sluice, and one of its CUDA backend where CUDA's headers are.

The needs of a wheel from the system say on which systems it runs. auditwheel reads them, and the platform tag becomes what
auditwheel says: manylinux. A wheel that needs a library that such systems do not have is an error.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


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


def build(source, out, beside=None):
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "pip", "wheel", source, "--no-build-isolation", "--no-deps", "-w", folder)
        wheel, = pathlib.Path(folder).glob("*.whl")
        run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform_of(wheel, beside), wheel)
        wheel, = pathlib.Path(folder).glob("*.whl")
        for earlier in out.glob(f"{wheel.name.partition('-')[0]}-*.whl"):
            earlier.unlink()
        return pathlib.Path(shutil.move(wheel, out / wheel.name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", help="where the wheels go")
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    wheels = [build(ROOT, out)]
    if "sluice_cuda_backend" in (ROOT / "build/wheel/build.ninja").read_text():
        wheels.append(build(ROOT / "python_bindings/cuda", out, beside=wheels[0]))
    for wheel in wheels:
        print(f"wheels: {wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
