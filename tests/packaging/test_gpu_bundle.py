"""tools/pack_for_gpu.sh and tools/gpu_check.sh: the bundle needs nothing of ours on the machine it goes to."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
# The libraries that every Linux with a C++ program has.
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-x86-64)\.so|linux-vdso")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    if not (BUILD / "libsluice_cuda.so").exists():
        pytest.skip("this build has no CUDA backend")
    path = tmp_path_factory.mktemp("gpu")
    packed = path / "bundle.tar.xz"
    quickly = {**os.environ, "XZ_OPT": "-1 -T0"}
    done = subprocess.run([ROOT / "tools/pack_for_gpu.sh", BUILD, packed], env=quickly, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert packed.stat().st_size <= 64 << 20
    subprocess.run(["tar", "-xJf", packed, "-C", path], check=True)
    return path / "sluice-gpu"


def objects(bundle):
    return sorted((bundle / "bin").iterdir()) + sorted((bundle / "lib").iterdir())


def resolved(bundle, path):
    """The files that the loader takes for `path`: {name: file}."""
    done = subprocess.run(["ldd", path], capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(bundle / "lib")})
    assert done.returncode == 0, done.stderr
    pairs = (line.split(" => ") for line in done.stdout.splitlines() if " => " in line)
    return {name.strip(): rest.split(" (")[0] for name, rest in pairs}


def test_nothing_is_loaded_from_outside_but_what_every_machine_has(bundle):
    for path in objects(bundle):
        libraries = resolved(bundle, path)
        for name, file in libraries.items():
            assert SYSTEM.match(name) or pathlib.Path(file).parent == bundle / "lib", f"{path.name}: {name} is {file}"
            assert not (SYSTEM.match(name) and (bundle / "lib" / name).exists()), f"{name} must be the machine's"


def check(bundle, logs, *steps):
    """gpu_check.sh without a GPU: what it prints, by step."""
    done = subprocess.run(["bash", bundle / "gpu_check.sh", "--device", "sim:0", "--logs", logs, *steps], timeout=900,
                          capture_output=True, text=True, cwd=logs.parent, env={"PATH": "/usr/bin:/bin", "HOME": str(logs.parent)})
    assert (logs / "table.txt").read_text() == done.stdout
    return done, {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()}


def test_the_device_suites_run_and_the_table_says_how(bundle, tmp_path):
    done, table = check(bundle, tmp_path / "logs", "info", "conformance", "tensor")
    assert table == {"info": "passed", "conformance": "passed", "tensor": "passed"}, done.stdout + done.stderr
    assert done.returncode == 0
    passed = re.search(r"PASSED  \] (\d+) tests", (tmp_path / "logs/conformance.log").read_text())
    assert int(passed[1]) >= 24  # the suite on cpu and sim


def test_a_failure_is_in_the_table_and_the_exit_status(bundle, tmp_path):
    program = bundle / "bin/fuzz_tests"
    kept = program.rename(bundle / "fuzz_tests.kept")
    try:
        program.write_text("#!/bin/sh\necho '[  FAILED  ] 1 test, listed below:'\nexit 1\n")
        program.chmod(0o755)
        done, table = check(bundle, tmp_path / "logs", "fuzz", "info")
    finally:
        kept.rename(program)
    assert table == {"fuzz": "FAILED", "info": "passed"}
    assert done.returncode == 1


def test_on_a_bare_system(bundle, tmp_path):
    """In a root folder that has the C and C++ libraries, and the bundle."""
    root = tmp_path / "root"
    (root / "tmp").mkdir(parents=True)
    shutil.copytree(bundle, root / "bundle", symlinks=True)
    loader = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
    needed = {loader}
    for path in objects(bundle):
        needed |= {pathlib.Path(file) for name, file in resolved(bundle, path).items() if SYSTEM.match(name)}
    for file in needed:
        (root / file.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, root / file.relative_to("/"))
    program = ["/bundle/bin/conformance_tests", "--gtest_filter=Devices/Conformance.*/cpu:Devices/Conformance.*/sim"]
    if subprocess.run(["unshare", "-r", "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here")
    done = subprocess.run(["unshare", "-r", "chroot", root, *program], capture_output=True, text=True, timeout=300,
                          env={"LD_LIBRARY_PATH": "/bundle/lib", "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"PASSED  \] 2\d tests", done.stdout), done.stdout


@pytest.mark.soak
def test_the_python_module_is_built_from_the_bundle(bundle, tmp_path):
    """With the interpreter of these tests; on the GPU machine with that one's."""
    if os.environ.get("SLUICE_LONG", "0") in ("", "0"):
        pytest.skip("compiles for minutes: make test-long")
    path = f"{pathlib.Path(sys.executable).parent}:/usr/bin:/bin"
    env = {"PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(["bash", bundle / "gpu_check.sh", "--device", "sim:0", "--logs", tmp_path / "logs", "module"],
                          capture_output=True, text=True, timeout=1800, env=env)
    assert done.returncode == 0, (tmp_path / "logs/module.log").read_text()[-3000:]
    step = re.search(r"<<'PYTHON'.*?\n(.*?)^PYTHON$", (bundle / "gpu_check.sh").read_text(), re.S | re.M)[1]
    done = subprocess.run([sys.executable, "-c", step, "sim:0"], capture_output=True, text=True, cwd=tmp_path,
                          env={**env, "PYTHONPATH": str(bundle / "python"), "LD_LIBRARY_PATH": str(bundle / "lib")})
    assert done.stdout == "a graph on sim:0 equals numpy\n", done.stderr
