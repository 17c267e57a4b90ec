#!/usr/bin/env python3
"""Runs the benchmarks and prints one table; the lines also go to out/bench.json. Usage: run.py [--only PREFIX].

Each program prints its results as JSON lines and takes a prefix of their names as its argument. A benchmark is not a
test: a slow figure fails nothing. A program that breaks is named, and the exit status is 1.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build/release"))

# The start of the names of a program's results, and the program: a script of this folder or a built executable.
PROGRAMS = [
    (("act.",), BUILD / "benchmarks/act_bench"),
    (("echo.",), BUILD / "benchmarks/echo_bench"),
    (("train.",), ROOT / "benchmarks/train.py"),
    (("engine_share.", "actors_gain.", "granularity."), ROOT / "benchmarks/step.py"),
    (("trace.",), ROOT / "benchmarks/trace_cost.py"),
    (("infer.",), ROOT / "benchmarks/infer.py"),
    (("resnet50.", "bert.", "gpt2.", "mlp.", "mlp_small.", "lstm.", "peak.", "memory.", "packing.", "first."),
     ROOT / "benchmarks/peers/peers.py"),
    (("eager.",), ROOT / "benchmarks/eager.py"),
    (("kernel.",), ROOT / "benchmarks/kernels.py"),
    (("attention.",), ROOT / "benchmarks/attention.py"),
    (("fusion.",), ROOT / "benchmarks/fusion.py"),
    (("overlap.",), ROOT / "benchmarks/overlap.py"),
    (("graphs.",), ROOT / "benchmarks/graphs.py"),
    (("forecast.",), ROOT / "benchmarks/forecast.py"),
    (("busy.",), ROOT / "benchmarks/busy.py"),
    (("conditions.",), ROOT / "benchmarks/conditions.py"),
    (("ddp.",), ROOT / "benchmarks/data_parallel.py"),
    (("mesh.",), ROOT / "benchmarks/mesh.py"),
    (("pipeline.",), ROOT / "benchmarks/pipeline.py"),
    (("dataloader.",), ROOT / "benchmarks/dataloader.py"),
    (("data.jpeg", "data.images"), ROOT / "benchmarks/images.py"),
    (("data.input",), ROOT / "benchmarks/input_pipelines.py"),
    (("data.stages",), ROOT / "benchmarks/input_stages.py"),
    (("data.nets",), ROOT / "benchmarks/input_nets.py"),
    (("compiled.",), ROOT / "benchmarks/compiled.py"),
    (("compile.",), BUILD / "benchmarks/compile_bench"),
    (("cold_start.",), ROOT / "benchmarks/cold_start.py"),
    (("import",), ROOT / "benchmarks/import_time.py"),
    (("page.",), ROOT / "benchmarks/page.py"),
    (("serve.",), ROOT / "benchmarks/serve.py"),
    (("backends.",), ROOT / "benchmarks/backends.py"),
    (("ladder.",), ROOT / "benchmarks/ladder/ladder.py"),
    (("zoo.",), ROOT / "benchmarks/zoo/zoo.py"),
    (("tiny.",), ROOT / "benchmarks/tiny/tiny.py"),
    (("gpu.",), ROOT / "benchmarks/gpu/gpu_bench.py"),
]
FIELDS = ("name", "ours", "peer", "peer_name", "unit", "ratio", "n", "spread", "command")


# Flags of processors and what they are called, the widest vectors first: processors of one name differ by them.
VECTORS = {"amx_tile": "AMX", "avx512_bf16": "AVX-512 and bfloat16", "avx512_vnni": "AVX-512 and VNNI", "avx512f": "AVX-512",
           "avx2": "AVX2"}


def machine() -> str:
    facts = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())
    flags = facts.get("flags", "").split()
    vectors = next((f" with {name}" for flag, name in VECTORS.items() if flag in flags), "")
    return f"{len(os.sched_getaffinity(0))} cores of {facts.get('model name') or os.uname().machine}{vectors}"


def related(prefixes: tuple[str, ...], only: str) -> bool:
    return any(prefix.startswith(only) or only.startswith(prefix) for prefix in prefixes)


def run_program(program: pathlib.Path, only: str) -> tuple[list[dict], str]:
    """The program's lines, and what went wrong, if anything."""
    if not program.exists():
        return [], f"{program} is missing; build first"
    command = [sys.executable, str(program)] if program.suffix == ".py" else [str(program)]
    process = subprocess.Popen(command + ([only] if only else []), stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = []
    for text in process.stdout:
        if not text.startswith("{"):
            print(text, end="", file=sys.stderr)
            continue
        line = json.loads(text)
        missing = [field for field in FIELDS if field not in line]
        if missing:
            return lines, f"a line without {', '.join(missing)}: {text.strip()}"
        lines.append(line)
        print_row(line)
    status = process.wait()
    return lines, f"exit status {status}" if status else ""


def number(value) -> str:
    return "-" if value is None else f"{value:.4g}"


def print_row(line: dict) -> None:
    print(f"{line['name']:<26} {number(line['ours']):>10} {number(line['peer']):>10} {number(line['ratio']):>8}"
          f" {line['n']:>4} {line['spread']:>7.1%}  {line['unit']}; peer: {line['peer_name']}", flush=True)


def merge(path: pathlib.Path, lines: list[dict], only: str) -> list[dict]:
    """The new lines, after those of earlier runs that a partial run has not measured again on its machine."""
    if not only or not path.exists():
        return lines
    new = {(line["name"], line["machine"]) for line in lines}
    return [line for line in json.loads(path.read_text()) if (line["name"], line.get("machine")) not in new] + lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PREFIX", help="only results whose names start so")
    arguments = parser.parse_args()
    chosen = [program for prefixes, program in PROGRAMS if related(prefixes, arguments.only)]
    if not chosen:
        names = ", ".join(f"{prefix}*" for prefixes, _ in PROGRAMS for prefix in prefixes)
        print(f"bench: no benchmark starts with '{arguments.only}'; there are {names}", file=sys.stderr)
        return 1
    print(f"{'name':<26} {'ours':>10} {'peer':>10} {'ratio':>8} {'n':>4} {'spread':>7}  a ratio above 1: ours is better")
    lines, broken = [], []
    place = {"date": time.strftime("%Y-%m-%d"), "machine": machine()}  # lines of other runs stay in the file
    for program in chosen:
        results, error = run_program(program, arguments.only)
        lines += [line | place for line in results]
        if error:
            broken.append(f"{program.name}: {error}")
    path = ROOT / "out/bench.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(merge(path, lines, arguments.only), indent=1) + "\n")
    print(f"\n{len(lines)} results; written to {path.relative_to(ROOT)}")
    for text in broken:
        print(f"bench: broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
