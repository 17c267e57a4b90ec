#!/usr/bin/env python3
"""Fails when an include points upward, across the towers, or up the rooms of a folder. Usage: tools/check_layers.py [ROOT]

The tables are the architecture (docs/architecture.md); CMakeLists.txt links by the first.
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
    "onnx": ["tensor", "graph", "plan", "base"],
}
# The second level. Each folder's rooms by floors, from the ground up: a room may include rooms of the floors below its
# own, and none beside it or above. So no circle of rooms can pass. "." is the folder itself.
CPU = ["cpu/math", "cpu", "cpu/strides", "cpu/support cpu/random", "cpu/loops cpu/onednn", "cpu/reduction cpu/indexing",
       "cpu/norm cpu/rows", "cpu/attention cpu/control cpu/conv cpu/fourier cpu/generated cpu/images cpu/linalg cpu/product cpu/spatial "
       "cpu/updates", "cpu/fused"]
OPS = ("control elementwise fourier fused indexing linalg loss movement network product reduction spatial update").split()
ROOMS = {
    "base": ["scalar", ".", "files"],
    "plan": [".", "firing", "verify pack", "time", "json", "family record foreign"],
    "graph": [".", "forms", "ops", " ".join(f"ops/{family}" for family in OPS) + " autodiff", "calls"],
    "compiler": [".", "lowering planning", "passes"],
    "streams": [". collective", "cpu sim cuda", "kinds"],
    "memory": ["."],
    "kernels": [".", *CPU, "c meta sim cuda", "cuda/attention cuda/conv cuda/product"],
    "actors": ["."],
    "runtime": [".", "live session/parts", "session", "bundle debug report", "family", "api"],
    "tensor": [".", "session forms", "api c"],
    "onnx": [".", "ops export"],
    "serving": ["core", "execution http grpc", "execution/model", "repository", "library program", "."],
}
MOST_SOURCES = 60  # of a folder, without its rooms
SOURCES = {".h", ".cpp", ".cu", ".inc"}
TOPS = ["python_bindings", "serving", "tools", "examples", "benchmarks", "tests"]  # nobody includes these
OWNERS = {  # third-party headers: the folders that own them
    r"gloo/": {"streams/collective"},
    r"caf/": {"actors", "runtime", "serving", "tests", "benchmarks"},
    r"oneapi/dnnl": {"kernels"},
    r"boost/json": {"plan", "runtime", "serving", "tools", "tests"},
    r"nanobind/": {"python_bindings"},
    r"hwy/": {"kernels"},
    r"jpeglib|jerror|png\.h|webp/decode": {"kernels"},
    r"Eigen/": {"kernels"},
    r"spdlog/": {"base"},
    r"onnx\.pb\.h": {"onnx"},
    r"cuda\.h": {"streams", "tests"},
}
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)[">]')


def check_rooms(root: Path) -> list[str]:
    errors = []
    for folder, floors in ROOMS.items():
        level = {str(Path(folder) / room): i for i, floor in enumerate(floors) for room in floor.split()}
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SOURCES:
                continue
            room = str(path.relative_to(root).parent)
            if room not in level:
                errors.append(f"{path.relative_to(root)}: {room} has no floor; ROOMS in tools/check_layers.py must name it")
                continue
            for number, line in enumerate(path.read_text(errors="ignore").splitlines(), 1):
                if not (match := INCLUDE.match(line)) or not match[2].startswith(folder + "/"):
                    continue
                other = str(Path(match[2]).parent)
                if other != room and level.get(other, len(floors)) >= level[room] and (root / match[2]).exists():
                    errors.append(f"{path.relative_to(root)}:{number}: {room} may not include {other}, which stands "
                                  f"{'beside' if level.get(other) == level[room] else 'above'} it")
        errors += [f"{room}: ROOMS in tools/check_layers.py names it, and it is no folder" for room in level
                   if (root / folder).is_dir() and not (root / room).is_dir()]
    for folder in [*ROOMS, *TOPS]:
        for room in sorted(p for p in (root / folder).rglob("*") if p.is_dir()) + [root / folder]:
            count = sum(p.suffix in SOURCES for p in room.iterdir()) if room.is_dir() else 0
            if count > MOST_SOURCES:
                errors.append(f"{room.relative_to(root)}: {count} sources; at most {MOST_SOURCES}: divide them into rooms")
    return errors


def check(root: Path) -> list[str]:
    errors = check_rooms(root)
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
