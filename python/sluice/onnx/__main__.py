"""python -m sluice.onnx MODEL...: what a model takes, gives and has; ends with 1 where Sluice cannot read one."""

from __future__ import annotations

import sys

from sluice.onnx import load


def _text(ports) -> str:
    return ", ".join(f"{p.name} {p.dtype or p.kind}{'' if p.dims is None else list(p.dims)}" for p in ports)


def main(paths: list[str]) -> int:
    if not paths:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    failed = 0
    for path in paths:
        try:
            model = load(path)
        except (OSError, RuntimeError, TypeError, ValueError) as e:
            print(f"{path}: {e}", file=sys.stderr)
            failed = 1
            continue
        count = sum(p.numel() for p in model.parameters())
        sets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.opsets.items()))
        print(f"{path}: {_text(model.inputs)} -> {_text(model.outputs)}; {count} parameters; {sets}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
