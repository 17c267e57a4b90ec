"""docs/adding-a-device.md: its commands, as they stand there."""

import os
import pathlib
import re
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))
PAGE = (ROOT / "docs/adding-a-device.md").read_text()


def test_the_example_is_built_outside_the_tree_and_is_a_device(tmp_path):
    commands = [line for block in re.findall(r"^```bash\n(.*?)^```", PAGE, re.S | re.M) for line in block.splitlines()]
    assert len(commands) == 4
    output = ""
    for line in commands:
        words = [w.replace("/tmp/device", str(tmp_path)).replace("build/release", str(BUILD)) for w in shlex.split(line)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=ROOT)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        output += done.stdout
    passed = [int(n) for n in re.findall(r"\[  PASSED  \] (\d+) tests", output)]
    assert passed[0] >= 12 and passed[1] >= 5, passed  # the suite, plans
    skipped = set(re.findall(r"SKIPPED \] (\S+) \(", output))  # the device has no chains
    assert "FAILED" not in output and skipped == {"Devices/Conformance.AChainGivesWhatItsWorkGives/cuda"}
    for test in re.findall(r"^\[       OK \] Devices/Conformance\.(\w+)/cuda", output, re.M):
        assert f"`{test}`" in PAGE, f"{test} is not on the page"


def test_a_backend_of_another_build_is_refused(tmp_path):
    """By the compiler and version it was made with, before anything else is asked of it."""
    program = tmp_path / "other.cpp"
    program.write_text('struct Backend { const char* abi; void* f; void* g; };\n'
                       'extern "C" const Backend* sluice_backend() { static Backend b{"another", 0, 0}; return &b; }\n')
    subprocess.run(["g++", "-shared", "-fPIC", program, "-o", tmp_path / "other.so"], check=True)
    done = subprocess.run([BUILD / "tests/conformance_tests", "--gtest_filter=Devices/Conformance.DescribesItself/cuda"],
                          capture_output=True, text=True, env={"SLUICE_CUDA_LIBRARY": str(tmp_path / "other.so")})
    assert done.returncode != 0
    assert re.search(r"belongs to another build: another; it must be of sluice", done.stdout), done.stdout
