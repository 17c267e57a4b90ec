#!/usr/bin/env python3
"""Fails when an include points upward or across the towers. Usage: tools/check_layers.py [ROOT]

The table is the architecture (docs/architecture.md); CMakeLists.txt links exactly the same.
"""
import re
import sys
from pathlib import Path

BACK = ["kernels", "memory", "streams"]
ALLOWED = {  # folder: the folders it may include besides itself
    "base": [],
    "plan": ["base"],
    "graph": ["plan", "base"],
    "compiler": ["graph", "plan", "base"],
    "streams": ["plan", "base"],
    "memory": ["streams", "plan", "base"],
    "kernels": ["memory", "streams", "plan", "base"],
    "actors": [*BACK, "plan", "base"],
    "runtime": ["actors", *BACK, "plan", "base"],
    "tensor": ["compiler", "graph", "runtime", "actors", *BACK, "plan", "base"],
}
TOPS = ["python_bindings", "serving", "tools", "examples", "benchmarks", "tests"]  # nobody includes these
OWNERS = {  # third-party headers: the folders that own them
    r"gloo/": {"streams/collective"},
    r"caf/": {"actors", "runtime", "serving", "tests", "benchmarks"},
    r"oneapi/dnnl": {"kernels"},
    r"boost/json": {"plan", "runtime", "serving", "tools", "tests"},
    r"nanobind/": {"python_bindings"},
    r"hwy/": {"kernels"},
    r"jpeglib|jerror": {"kernels"},
    r"Eigen/": {"kernels"},
    r"spdlog/": {"base"},
    r"cuda\.h": {"streams", "tests"},
}
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def check(root: Path) -> list[str]:
    errors = []
    for folder in [*ALLOWED, *TOPS]:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".cu"}:
                continue
            for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
                if not (match := INCLUDE.match(line)):
                    continue
                where, target = f"{path.relative_to(root)}:{number}", match[2]
                head, inner, _ = target.partition("/")
                upward = head in TOPS or (head in ALLOWED and head != folder and head not in ALLOWED.get(folder, []))
                if folder in ALLOWED and inner and upward:
                    errors.append(f"{where}: {folder} may not include {head}")
                owning = {folder, str(path.relative_to(root).parent)}
                for prefix, owners in OWNERS.items():
                    if re.match(prefix, target) and not owning & owners:
                        errors.append(f"{where}: <{target}> belongs to {', '.join(sorted(owners))}")
                    elif re.match(prefix, target) and path.suffix == ".h" and folder in {"plan", "runtime", "actors"}:
                        errors.append(f"{where}: <{target}> may not appear in a header of {folder}")
    return errors


if __name__ == "__main__":
    found = check(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent))
    print("\n".join(found) or "layers: ok")
    sys.exit(bool(found))
