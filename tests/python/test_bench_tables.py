"""benchmarks/document.py: what was measured, as tables of a page."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks/document.py"

pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="the benchmarks are not here")


def line(name, **more):
    return dict(name=name, ours=1.5, peer=3.0, peer_name="PyTorch | eager", unit="ms", ratio=2.0, n=9, spread=0.0123,
                date="2030-01-02",
                machine="2 cores") | more


def document(folder, lines, page, *arguments):
    (folder / "bench.json").write_text(json.dumps(lines))
    (folder / "page.md").write_text(page)
    done = subprocess.run([sys.executable, SCRIPT, "--results", folder / "bench.json", "--page", folder / "page.md",
                           *arguments],
                          capture_output=True, text=True, timeout=60)
    return done, (folder / "page.md").read_text()


def test_tables_replace_what_is_between_the_marks(tmp_path):
    page = "# Page\n\n<!-- figures: begin -->\nof before\n<!-- figures: end -->\n\nmore\n"
    lines = [line("train.mlp"), line("infer.net", peer=None, ratio=None), line("train.big", date="2030-01-01")]
    for _ in range(2):  # again, it is the same
        done, page = document(tmp_path, lines, page)
        assert done.returncode == 0, done.stderr
    assert page.startswith("# Page\n\n<!-- figures: begin -->\n") and page.endswith("<!-- figures: end -->\n\nmore\n")
    assert "of before" not in page and page.count("## ") == 2
    assert "| train.mlp | 1.5 | 3 | 2 | 9 | 1.2% | ms | PyTorch \\| eager |" in page
    assert "| infer.net | 1.5 |  |  | 9 |" in page
    assert "Measured on 2030-01-01 and 2030-01-02 on 2 cores: `make bench ONLY=train`" in page
    _, page = document(tmp_path, lines, page, "--only", "infer.")
    assert page.count("## ") == 1 and "train" not in page


def test_machines_have_tables_of_their_own(tmp_path):
    lines = [line("train.mlp"), line("train.mlp", ours=1.25, machine="4 cores"), line("train.big")]
    _, page = document(tmp_path, lines, "<!-- figures: begin -->\n<!-- figures: end -->\n")
    assert page.count("## ") == 1 and page.count("| workload |") == 2
    here, there = page.split("Measured on 2030-01-02 on 4 cores: `make bench ONLY=train`")
    assert "| train.mlp | 1.5 |" in here and "| train.big |" in here and "| train.mlp | 1.25 |" in there


def test_a_run_replaces_lines_of_its_own_machine(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import run
    kept = [line("train.mlp", machine="4 cores"), line("infer.net")]
    (tmp_path / "bench.json").write_text(json.dumps([line("train.mlp"), *kept]))
    new = [line("train.mlp", ours=1.25)]
    assert run.merge(tmp_path / "bench.json", new, "train") == kept + new
    assert run.merge(tmp_path / "bench.json", new, "") == new


def test_refusals(tmp_path):
    done, page = document(tmp_path, [line("a.b")], "no marks\n")
    assert done.returncode != 0 and page == "no marks\n"
    assert "the page must have a line '<!-- figures: begin -->'" in done.stderr
    done, _ = document(tmp_path, [line("a.b")], (ROOT / "docs/figures.md").read_text(), "--only", "c")
    assert done.returncode != 0 and "no result starts with 'c'" in done.stderr


def test_the_page_has_its_marks(tmp_path):
    done, page = document(tmp_path, [line("a.b")], (ROOT / "docs/figures.md").read_text())
    assert done.returncode == 0 and "| a.b |" in page, done.stderr
