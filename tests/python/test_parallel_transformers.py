"""Models of the `transformers` package over a mesh, by the plans that they carry: losses and steps are those of one device."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

# Small configurations of families whose plans use words of dense layers.
SCRIPT = """
import json
import sys

import numpy as np
import torch
import sluice
from sluice import nn, parallel
from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

small = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, attention_dropout=0.0, attn_implementation="eager", use_cache=False)
families = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM), "gemma": (GemmaConfig, GemmaForCausalLM)}
draw = np.random.default_rng(0)
ids = draw.integers(1, 64, size=(4, 6))
B, S = sluice.sbp.broadcast, sluice.sbp.split

class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(sluice.optim.SGD(model.parameters(), lr=0.1))

    def build(self, ids):
        logits = self.model(input_ids=ids).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 64), ids[:, 1:].reshape(-1))
        loss.backward()
        return loss

for family in sys.argv[1:]:
    config, kind = families[family]
    found = {}
    for name, mesh in (("one", None), ("mesh", parallel.mesh("sim", dp=2, tp=2))):
        torch.manual_seed(3)
        model = kind(config(**small)).double()
        x = sluice.tensor(ids)
        if mesh is not None:
            strategy = parallel.parallelize(model, mesh)
            x = x.to_global(mesh, {"dp": S(0)})
        graph = Train(model)
        found[name] = [graph(x).item() for _ in range(3)]
    split = sum(S(0) in way or S(1) in way for way in strategy.lies.values())
    kinds = sorted({kind for kind, *_, bytes in graph._call.session.conversions() if bytes})
    print(json.dumps([family, found["one"], found["mesh"], split, kinds]))
"""


EXPERTS = """
import json
import sys

import numpy as np
import torch
import sluice
from sluice import nn, parallel
from transformers import MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

small = dict(vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=8, attn_implementation="eager", use_cache=False, num_experts_per_tok=2)
families = {"mixtral": (lambda: MixtralConfig(num_local_experts=4, **small), MixtralForCausalLM),
            "qwen3_moe": (lambda: Qwen3MoeConfig(num_experts=4, moe_intermediate_size=24, norm_topk_prob=True, **small), Qwen3MoeForCausalLM)}
ids = np.random.default_rng(0).integers(1, 64, size=(4, 6))
S = sluice.sbp.split

class Train(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.add_optimizer(sluice.optim.SGD(model.parameters(), lr=0.1))

    def build(self, ids):
        logits = self.model(input_ids=ids).logits
        loss = nn.functional.cross_entropy(logits[:, :-1].reshape(-1, 64), ids[:, 1:].reshape(-1))
        loss.backward()
        return loss

for family in sys.argv[1:]:
    config, kind = families[family]
    found = {}
    for name, mesh in (("one", None), ("mesh", parallel.mesh("sim", dp=2, tp=2))):
        torch.manual_seed(3)
        model = kind(config()).double()
        with torch.no_grad():
            before = model(input_ids=sluice.tensor(ids)).logits
            names = parallel.convert_experts(model)
            off = (model(input_ids=sluice.tensor(ids)).logits - before).abs().max().item()
        x = sluice.tensor(ids)
        if mesh is not None:
            strategy = parallel.parallelize(model, mesh)
            x = x.to_global(mesh, {"dp": S(0)})
            split = sum(strategy[f"{own}.w1"][1] == S(0) for own in names)
        graph = Train(model)
        found[name] = [graph(x).item() for _ in range(3)]
    kinds = {kind for kind, *_, bytes in graph._call.session.conversions() if bytes}
    print(json.dumps([family, off, found["one"], found["mesh"], split, len(names), "all_to_all" in kinds]))
try:
    parallel.convert_experts(nn.Linear(2, 2))
except ValueError as error:
    print(error)
"""


def test_blocks_of_experts_are_converted_and_split(tmp_path):
    """Logits are those of the blocks of transformers, and training over a mesh has the losses of one device."""
    (tmp_path / "script.py").write_text(EXPERTS)
    command = [sys.executable, "-m", "sluice.mock_torch", "--lazy", str(tmp_path / "script.py"), "mixtral", "qwen3_moe"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    *lines, refused = [line for line in done.stdout.splitlines() if line.startswith(("[", "convert"))]
    assert refused == ("convert_experts: the model has no blocks of experts; must have blocks of MixtralSparseMoeBlock, Qwen3MoeSparseMoeBlock, "
                       "OlmoeSparseMoeBlock")
    assert [json.loads(line)[0] for line in lines] == ["mixtral", "qwen3_moe"]
    for family, off, one, mesh, split, blocks, exchanged in map(json.loads, lines):
        assert off < 1e-6 and one[-1] < one[0], family  # probabilities are float32
        assert mesh == pytest.approx(one, rel=1e-6), family
        assert split == blocks == 2 and exchanged, family


@pytest.mark.soak
def test_models_are_split_by_the_plans_that_they_carry(tmp_path, repetitions, count):
    families = ["llama", "qwen2", "gemma"][:repetitions(1, 3)]
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "sluice.mock_torch", "--lazy", str(tmp_path / "script.py"), *families]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [family for family, *_ in found] == families
    for family, one, mesh, split, kinds in found:
        assert one[-1] < one[0], family
        assert mesh == pytest.approx(one, rel=1e-6), family
        assert split >= 14  # of two layers, the weights that the plan names
        assert "all_reduce" in kinds or "reduce_scatter" in kinds
    count("plans of transformers", len(families), "families")


def test_the_page_takes_a_model_from_one_process_to_three_axes(tmp_path):
    """The program of docs/parallel.md: a Llama alone and over pp x dp x tp, with equal losses."""
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/parallel.md"
    (source,) = re.findall(r"```py\n(.*?)```", page.read_text(), re.S)
    (tmp_path / "script.py").write_text(source)
    done = subprocess.run([sys.executable, "-m", "sluice.mock_torch", "--lazy", str(tmp_path / "script.py")], capture_output=True, text=True,
                          timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    alone, cut = (line.partition("} ") for line in done.stdout.splitlines() if line.startswith("{"))
    assert (alone[0], cut[0]) == ("{", "{'pp': 2, 'dp': 2, 'tp': 2")
    one, several = (json.loads(line[2]) for line in (alone, cut))
    assert len(one) == 3 and one[-1] < one[0] and several == pytest.approx(one, rel=1e-4)
    assert re.search(r"^model\.layers\.3\.mlp\.down_proj\.weight +\(32, 48\) +B,S\(1\) +1$", done.stdout, re.M)
