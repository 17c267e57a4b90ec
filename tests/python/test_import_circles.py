"""tools/check_python.sh: an import that closes a large circle, or that asks the root, is refused."""

import importlib.util
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECK = ROOT / "tools/check_python.sh"
pytestmark = pytest.mark.skipif(not CHECK.exists() or importlib.util.find_spec("importlinter") is None,
                                reason="not a checkout with its requirements")


def circles(imports):
    spec = importlib.util.spec_from_file_location("import_circles", ROOT / "tools/import_circles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.circles(imports)


def test_circles_are_found_largest_first():
    chain = {"a": {"b"}, "b": {"c"}, "c": set()}
    assert circles(chain) == []
    assert circles({**chain, "c": {"a"}}) == [["a", "b", "c"]]
    both = {"a": {"b"}, "b": {"a", "x"}, "x": {"y"}, "y": {"z"}, "z": {"x"}, "alone": {"a", "x"}}
    assert circles(both) == [["x", "y", "z"], ["a", "b"]]
    entangled = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": {"b"}}
    assert circles(entangled) == [["a", "b", "c", "d"]]


@pytest.fixture
def package(tmp_path):
    """A package of four modules under the project's contracts of circles and of the root, without exceptions."""
    folder = tmp_path / "sluice"
    folder.mkdir()
    for name in ("__init__", "a", "b", "c", "d"):
        (folder / f"{name}.py").write_text("")
    config = tmp_path / "floors.toml"
    config.write_text('''
[tool.importlinter]
root_package = "sluice"
contract_types = ["circles: import_circles.CirclesContract"]
[[tool.importlinter.contracts]]
name = "root"
type = "forbidden"
source_modules = ["sluice.**"]
forbidden_modules = ["sluice"]
as_packages = false
allow_indirect_imports = true
[[tool.importlinter.contracts]]
name = "circles"
type = "circles"
largest = 3
''')

    def lint(**texts):
        for name, text in texts.items():
            (folder / f"{name}.py").write_text(text)
        command = shutil.which("lint-imports") or str(ROOT / ".venv/bin/lint-imports")
        return subprocess.run([command, "--no-cache", "--config", str(config)], cwd=tmp_path, capture_output=True, text=True,
                              env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'tools'}", "PATH": "/usr/bin:/bin"})

    return lint


def test_a_circle_of_four_is_refused_and_named(package):
    small = dict(a="from sluice import b", b="from sluice import c", c="from sluice.a import x")
    assert package(**small).returncode == 0
    done = package(**small | dict(c="from sluice import d", d="def f():\n    from sluice import a"))
    assert done.returncode == 1
    assert "4 modules import each other; at most 3: sluice.a, sluice.b, sluice.c, sluice.d" in done.stdout.replace("\n", " ")


def test_an_import_of_the_root_is_refused(package):
    assert package(a="from sluice import b").returncode == 0
    done = package(a="def f():\n    import sluice")
    assert done.returncode == 1 and "sluice.a is not allowed to import sluice" in done.stdout
