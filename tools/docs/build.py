#!/usr/bin/env python3
"""Makes the documentation as static pages: `make docs`.

The pages are the Markdown files of README, docs/ and examples/, as they are. This program copies them to build/docs/source,
points their links at the copies, writes the reference beside them (Python from docstrings, C++ and C from the comments
of the headers), and has Sphinx make build/docs/html. Every warning is an error: a link to a page or heading that is not
there, a page without a place in docs/site/contents.md.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import headers
import reference

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAPPED = {"README.md": "index.md", "examples/README.md": "examples.md", "docs/adr": "adr/index.md", "docs/adr/README.md": "adr/index.md"}
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def staged(path):
    """The place of a file of the tree among the copies, or None."""
    if path in MAPPED:
        return MAPPED[path]
    return path.removeprefix("docs/") if path.startswith("docs/") and (ROOT / path).is_file() else None


def with_links(text, page):
    """`text` of the file `page`, with links that fit its copy. A link out of the documentation becomes its text."""
    here = os.path.dirname(staged(page))

    def replace(match):
        label, (path, mark, anchor) = match[1], match[2].partition("#")
        if "://" in match[2] or not path:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), path))
        target = staged(path)
        if target is None and not (ROOT / path).exists():
            return match[0]  # Sphinx says so
        if target is None:
            return f"`{label}`" if re.fullmatch(r"[\w.-]+[./][\w./-]+", label) else label
        return f"[{label}]({os.path.relpath(target, here or '.')}{mark}{anchor})"

    parts = re.split(r"(^```.*?^```)", text, flags=re.S | re.M)  # odd ones are blocks of code
    return "".join(part if i % 2 else LINK.sub(replace, part) for i, part in enumerate(parts))


def pages():
    """The name and text of every page that is written by hand."""
    paths = ["README.md", "examples/README.md"]
    paths += sorted(str(p.relative_to(ROOT)) for folder in ("docs", "docs/adr") for p in (ROOT / folder).glob("*.md"))
    result = {staged(path): with_links((ROOT / path).read_text(), path) for path in paths}
    contents = (ROOT / "docs/site/contents.md").read_text()
    for pattern in re.findall(r"^(\w+)\*$", contents, re.M):  # pages that may not be there
        if not any(name.startswith(pattern) for name in result):
            contents = contents.replace(f"\n{pattern}*\n", "\n")
    result["index.md"] += "\n" + contents
    result["adr/index.md"] += "\n```{toctree}\n:glob:\n:hidden:\n\n[0-9]*\n```\n"
    return result


def write(folder, name, content):
    """Writes a file unless it is there with this content: Sphinx reads again what has changed."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)


def page_to_try():
    """The page of plan-viz in docs/slots-by-trying.md: of the plan that stands there, with a choice of slots."""
    from sluice._base.tools import find_tool

    text = re.search(r"^```json\n(.*?)^```", (ROOT / "docs/slots-by-trying.md").read_text(), re.S | re.M)[1]
    with tempfile.TemporaryDirectory() as folder:
        plan, page = pathlib.Path(folder, "three.json"), pathlib.Path(folder, "three.html")
        plan.write_text(text)
        subprocess.run([find_tool("plan-viz"), "html", plan, "--slots", "3", "-o", page], check=True, stdout=subprocess.DEVNULL)
        return page.read_bytes()


def lay_out(source):
    files = pages()
    files["site/static/three-actors.html"] = page_to_try()
    files |= headers.pages(ROOT / "include/sluice")
    files |= reference.pages(ROOT)
    for folder in ("docs/images", "docs/site"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix in (".png", ".svg", ".css", ".py"):
                files[str(path.relative_to(ROOT / "docs"))] = path.read_bytes()
    for name, content in files.items():
        write(source, name, content)
    for path in source.rglob("*"):  # of an earlier build
        if path.is_file() and str(path.relative_to(source)) not in files:
            path.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/docs", help="where the pages go")
    parser.add_argument("--external", action="store_true", help="check links to other sites, too")
    options = parser.parse_args()
    out = options.out.resolve()
    lay_out(out / "source")
    version = re.search(r"project\(sluice VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-c", str(out / "source/site"), "-d", str(out / "cache")]
    for builder, folder in [("html", "html"), *([("linkcheck", "links")] if options.external else [])]:
        done = subprocess.run([*command, "-b", builder, str(out / "source"), str(out / folder)],
                              env={**os.environ, "SLUICE_DOCS_VERSION": version})
        if done.returncode:
            return done.returncode
    if speller := shutil.which("codespell", path=f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', '')}"):
        words = ROOT / "docs/site/words.txt"
        texts = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "examples/README.md")), *(ROOT / "docs").glob("*.md"),
                 *(ROOT / "docs/adr").glob("*.md")]
        if subprocess.run([speller, "--ignore-words", str(words), *map(str, texts)]).returncode:
            return 1
    print(f"docs: {out / 'html/index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
