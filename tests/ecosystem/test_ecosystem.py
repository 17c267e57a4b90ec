"""Answers about packages do not become worse: a pinned part is tried again here, all of it in `make test-long`."""

import json
import subprocess
import sys

import pytest

from ecosystem import beside, compare, examples, imports, page, results, transformers_models
from ecosystem.packages import PACKAGES

pytestmark = pytest.mark.skipif(not beside.INSTALLED, reason="the packages do not lie beside the environment: tools/setup.sh puts them there")
PINNED = [("timm", "resnet"), ("timm", "mambaout"), ("timm", "vision_transformer_relpos"), ("timm", "mobilenetv3"),
          ("torchvision", "squeezenet1_1"), ("transformers", "bert"), ("transformers", "vit"), ("transformers", "t5"),
          ("transformers", "roberta"), ("generation", "llama")]
KNOWN = results.read()


def test_the_page_says_what_is_known():
    assert page.FILE.read_text() == page.text()


def test_what_is_known_is_of_the_pinned_versions():
    for name, found in KNOWN["packages"].items():
        assert found["version"] == imports.version(name), f"{name}: run `python -m ecosystem imports:{name}`"
    assert set(KNOWN["packages"]) <= set(PACKAGES)


@pytest.mark.parametrize("zoo,case", PINNED)
def test_models_are_right(zoo, case):
    assert not results.tried(zoo, case)


def test_the_types_of_transformers_that_are_right():  # ECO-02
    """The page says what is known of all types; the pinned ones are tried again above."""
    found = KNOWN["zoos"]["transformers"]
    asked = {case: wrong for case, wrong in found.items() if "excluded" not in wrong}
    assert len(found) == transformers_models.TYPES and all(wrong["excluded"] for wrong in found.values() if "excluded" in wrong)
    right = {step: sum(step not in wrong and "all" not in wrong for wrong in asked.values()) / len(asked) for step in compare.STEPS}
    assert right["forward"] >= 0.9 and right["gradient"] >= 0.8 and right["graph"] >= 0.9 and right["training"] >= 0.9
    assert KNOWN["packages"]["transformers"]["import"] == KNOWN["packages"]["transformers"]["of"]
    assert KNOWN["zoos"]["generation"] and not any(KNOWN["zoos"]["generation"].values())


@pytest.mark.parametrize("name", ["einops", "skorch", "accelerate", "pytorch_lightning"])
def test_examples_have_torchs_results(name):
    assert examples.tried(name) == ""


@pytest.mark.soak
def test_the_types_of_transformers_are_counted():
    # In a process of its own: another version may be imported in this one.
    program = "from ecosystem import results; print(len(list(results.ZOOS['transformers'][0])))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True,
                          cwd=beside.ROOT / "tests")
    assert int(done.stdout.split()[-1]) == transformers_models.TYPES


@pytest.mark.soak
@pytest.mark.parametrize("zoo", sorted(results.ZOOS))
def test_all_models(zoo, repetitions, count):
    known = KNOWN["zoos"].get(zoo, {})
    cases = [case for case in results.ZOOS[zoo][0] if case in known]
    worse = {}
    some = cases[:: repetitions(len(cases), 1)]
    for case in some:
        found = results.tried(zoo, case)
        if found.keys() - known[case].keys():
            worse[case] = found
    count(f"models of {zoo}", len(some), "models")
    assert not worse


@pytest.mark.soak
def test_all_examples(repetitions, count):
    names = sorted(examples.NAMES)[: repetitions(1, len(examples.NAMES))]
    worse = {name: why for name in names if (why := examples.tried(name)) and not KNOWN["examples"].get(name)}
    count("examples of packages", len(names), "examples")
    assert not worse


@pytest.mark.soak
def test_all_imports(repetitions, count):
    names = ["einops", *sorted(PACKAGES)][: repetitions(1, len(PACKAGES) + 1)]
    worse = {}
    for name in names:
        found = imports.counted(name)
        if new := found["lacking"].keys() - KNOWN["packages"].get(name, {"lacking": {}})["lacking"].keys():
            worse[name] = {module: found["lacking"][module] for module in new}
    count("packages imported", len(names), "packages")
    assert not worse


def test_the_command_names_what_it_takes():
    done = subprocess.run([sys.executable, "-m", "ecosystem", "--help"], capture_output=True, text=True, timeout=300,
                          cwd=beside.ROOT / "tests", check=False)
    assert done.returncode == 0 and "imports:NAME" in done.stdout, done.stderr
    assert json.loads(results.FILE.read_text()).keys() == {"packages", "imports", "zoos", "examples"}
