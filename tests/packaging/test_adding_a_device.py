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
    assert len(commands) == 6
    output = ""
    for line in commands:
        words = [w.replace("/tmp/", f"{tmp_path}/").replace("build/release", str(BUILD)) for w in shlex.split(line)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd=ROOT)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        output += done.stdout
    passed = [int(n) for n in re.findall(r"\[  PASSED  \] (\d+) tests", output)]
    assert passed[0] >= 12 and passed[1] >= 5, passed  # the suite, plans
    skipped = set(re.findall(r"SKIPPED \] (\S+) \(", output))  # the device has no chains
    assert "FAILED" not in output and skipped == {"Devices/Conformance.AChainGivesWhatItsWorkGives/example"}
    for test in re.findall(r"^\[       OK \] Devices/Conformance\.(\w+)/example", output, re.M):
        assert f"`{test}`" in PAGE, f"{test} is not on the page"


def refusal_of(tmp_path, abi, kind):
    """The refusal of a library that says this of itself."""
    program = tmp_path / "other.cpp"
    program.write_text('struct Backend { const char *abi, *kind; void* rest[5]; };\n'
                       f'extern "C" const Backend* sluice_backend() {{ static Backend b{{"{abi}", "{kind}", {{}}}}; return &b; }}\n')
    subprocess.run(["g++", "-shared", "-fPIC", program, "-o", tmp_path / "other.so"], check=True)
    done = subprocess.run([BUILD / "tests/conformance_tests", "--gtest_filter=Devices/Conformance.DescribesItself/example"],
                          capture_output=True, text=True,
                          env={"SLUICE_TEST_DEVICE": "example", "SLUICE_EXAMPLE_LIBRARY": str(tmp_path / "other.so")})
    assert done.returncode != 0
    return done.stdout


def test_a_backend_of_another_build_is_refused(tmp_path):
    """By the compiler and version it was made with, before anything else is asked of it."""
    told = refusal_of(tmp_path, "another", "example")
    assert re.search(r"belongs to another build: another; it must be of sluice", told), told


def test_a_backend_has_a_kind_of_its_own(tmp_path):
    abi = re.search(r'it must be of (sluice [^"\n]*)', refusal_of(tmp_path, "another", "example"))[1]
    assert "other.so' is of kind 'sim'; it must have a kind of its own" in refusal_of(tmp_path, abi, "sim")
    assert "other.so': device: bad kind: 'A-B'; must be a name" in refusal_of(tmp_path, abi, "A-B")
