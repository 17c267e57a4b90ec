"""`make docs`: the site is made without a warning, every page has its place, and the checks of the build are real."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(tree, out):
    return subprocess.run([sys.executable, tree / "tools/docs/build.py", "--out", out], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("docs")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / "html"


def test_every_page_is_there_with_its_content(site):
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/adr").glob("*.md")]:
        name = "adr/index.md" if page.name == "README.md" else page.relative_to(ROOT / "docs")
        html = (site / name).with_suffix(".html")
        title = re.match(r"# (.*)", page.read_text())[1].replace("`", "")
        assert title.split(":")[0].split(" ")[0] in html.read_text(), page


def test_groups_of_the_contents(site):
    front = (site / "index.html").read_text()
    groups = re.findall(r'<p class="caption".*?<span class="caption-text">(.*?)</span>', front)
    assert groups == ["Get started", "Coming from PyTorch", "Coming from OneFlow", "Graphs and plans", "Train", "Save and load",
                      "Embed in C++", "Several devices and ranks", "Performance and threads", "Troubleshooting", "Reference", "Inside"]


def test_reference_has_signatures_and_contracts(site):
    elementwise = (site / "reference/python/ops_elementwise.html").read_text()
    assert 'id="sluice.add"' in elementwise and "alpha" in elementwise
    assert 'id="sluice.nn.Linear"' in (site / "reference/python/sluice_nn.html").read_text()
    session = (site / "reference/cpp/session_h.html").read_text()
    assert "try_submit" in session and "max_in_flight" in session and "impl_" not in session
    assert "sluice_session_run" in (site / "reference/cpp/sluice_h.html").read_text()
    assert 'id="sluice.ops.conv"' in (site / "reference/ops.html").read_text()


def test_pictures_are_shown(site):
    for page in site.rglob("*.html"):
        for source in re.findall(r'<img[^>]* src="([^"]+)"', page.read_text()):
            assert "://" in source or (page.parent / source).exists(), (page, source)


def test_a_page_has_a_plan_to_try(site):
    html = (site / "slots-by-trying.html").read_text()
    source = re.search(r'<iframe src="([^"]+)"', html)[1]
    assert '"name":"three actors"' in (site / source).read_text(), "tests/python/test_slots_page.py clicks through it"


def test_links_within_the_site_lead_somewhere(site):
    ids = {}
    for page in site.rglob("*.html"):
        ids[page.resolve()] = set(re.findall(r' id="([^"]+)"', page.read_text()))
    for page in ids:
        for link in re.findall(r'<a[^>]* href="([^"]+)"', page.read_text()):
            if "://" in link or link.startswith("mailto:"):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page, link)
            assert not anchor or target not in ids or anchor in ids[target], (page, link)


@pytest.mark.parametrize("change, told", [
    (lambda docs: (docs / "stray.md").write_text("# A page without a place\n"), "stray.md"),
    (lambda docs: (docs / "data.md").write_text("# Data\n\n[there](nowhere.md)\n"), "nowhere.md"),
    (lambda docs: (docs / "data.md").write_text("# Data\n\n[there](embedding.md#no-such-heading)\n"), "no-such-heading"),
], ids=["a page without a place", "a link to no page", "a link to no heading"])
def test_what_is_wrong_fails_the_build(change, told, tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT / "docs", tree / "docs")
    for folder in ("tools/docs", "examples", "include", "graph/ops"):
        (tree / folder).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(ROOT / folder, tree / folder)
    for name in ("README.md", "CHANGELOG.md", "CMakeLists.txt"):
        shutil.copy(ROOT / name, tree / name)
    # The reference takes most of the time and has no part in this.
    reference = tree / "tools/docs/reference.py"
    reference.write_text('def pages(root):\n    return {f"reference/{n}.md": f"# {n}\\n" for n in ("python/index", "ops")}\n')
    change(tree / "docs")
    done = build(tree, tmp_path / "out")
    assert done.returncode != 0 and told in done.stderr, done.stderr


def test_spelling_is_checked(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("The recieved tensor.\n")
    speller = pathlib.Path(sys.executable).parent / "codespell"
    assert subprocess.run([speller, page], capture_output=True).returncode != 0
