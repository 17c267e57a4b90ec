"""Programs of torch with `model.compile()` added: each number that they print is that of the eager program."""

import pathlib
import re

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "torch_scripts"
# By program, most calls that run eagerly: of sizes beyond the limit, and of what returns a distribution.
SCRIPTS = {"char_lstm": 0, "mlp": 0, "seq2seq": 0, "gpt": 30, "reinforce": 300}


def changed(name):
    text = (FOLDER / f"{name}.py").read_text()
    text = re.sub(r"^( *)import torch( *(#.*)?)$", r"\1import sluice as torch\2", text, flags=re.M)
    return re.sub(r"^( *)(import|from) torch([. ])", r"\1\2 sluice\3", text, flags=re.M)


def numbers(text):
    return [float(n) for n in re.findall(r"-?\d+\.\d+", text)]


@pytest.mark.parametrize("name", list(SCRIPTS))
def test_a_program_of_torch_with_its_model_compiled(name, run_script):
    eager = run_script(changed(name))
    assert eager.returncode == 0, eager.stderr
    text = re.sub(r"^( *)(model|policy) = (.*\))$", r"\1\2 = \3\n\1\2.compile()", changed(name), flags=re.M)
    counts = "import sys, sluice\ns = sluice.compile.stats()\nprint('COUNTS', s['plans'], s['backward_plans'], s['eager_calls'], file=sys.stderr)\n"
    compiled = run_script(text + "\n" + counts)
    assert compiled.returncode == 0, compiled.stderr
    assert len(numbers(eager.stdout)) > 10 and numbers(compiled.stdout) == pytest.approx(numbers(eager.stdout), rel=1e-4, abs=1e-4)
    plans, backward_plans, eager_calls = map(int, compiled.stderr.rpartition("COUNTS")[2].split())
    assert plans > 0 and backward_plans > 0 and eager_calls <= SCRIPTS[name]
