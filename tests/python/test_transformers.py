"""Three models of the `transformers` package on Sluice, within mock_torch: states, logits, gradients and tokens are torch's."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

# Runs on either torch: what it draws, it draws from a seed.
SCRIPT = """
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import (BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, ResNetConfig,
                          ResNetForImageClassification)

folder, given = Path(sys.argv[1]), sys.argv[2:]  # given: a folder whose states are taken
draw = np.random.default_rng(0)
ids = torch.tensor(draw.integers(1, 100, size=(3, 12)))
mask = torch.tensor([[1] * 12, [1] * 9 + [0] * 3, [1] * 5 + [0] * 7])
images = torch.tensor(draw.normal(size=(4, 3, 48, 48)).astype(np.float32))
text = dict(vocab_size=100, initializer_range=0.3)
bert = BertConfig(hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96, num_labels=3,
                  hidden_dropout_prob=0, attention_probs_dropout_prob=0, **text)
gpt2 = GPT2Config(n_embd=48, n_layer=3, n_head=4, n_positions=64, embd_pdrop=0, attn_pdrop=0, resid_pdrop=0, **text)
resnet = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 48, 64], depths=[1, 2, 2, 1], num_labels=5)
greedy = dict(max_new_tokens=16, do_sample=False, pad_token_id=0)
models = {
    "bert": (BertForSequenceClassification, bert, dict(input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 2, 1]))),
    "gpt2": (GPT2LMHeadModel, gpt2, dict(input_ids=ids, attention_mask=mask, labels=ids)),
    "resnet": (ResNetForImageClassification, resnet, dict(pixel_values=images, labels=torch.tensor([1, 4, 0, 2]))),
}
for name, (kind, config, inputs) in models.items():
    torch.manual_seed(3)
    model = kind(config)
    torch.save(model.state_dict(), folder / f"{name}.first.pt")
    if given:
        said = model.load_state_dict(torch.load(Path(given[0]) / f"{name}.first.pt"))
        assert not said.missing_keys and not said.unexpected_keys
    found = {}
    with torch.no_grad():
        model.eval()
        out = model(**inputs)
        found["logits"] = out.logits.numpy()
        if name == "gpt2":
            found["tokens"] = model.generate(ids[:1], **greedy).numpy()
            found["no_cache"] = model.generate(ids[:1], **greedy, use_cache=False).numpy()
    model.train()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    out = model(**inputs)
    out.loss.backward()
    found["loss"] = np.float32(out.loss.item())
    found.update({f"grad.{key}": p.grad.numpy().copy() for key, p in model.named_parameters()})
    sgd.step()
    torch.save(model.state_dict(), folder / f"{name}.then.pt")
    np.savez(folder / f"{name}.npz", **found)
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path]:
    """The folders that torch and Sluice filled."""
    top = tmp_path_factory.mktemp("transformers")
    (top / "script.py").write_text(SCRIPT)
    for name, launch in (("torch", []), ("sluice", ["-m", "sluice.mock_torch", "--lazy"])):
        (top / name).mkdir()
        given = [] if name == "torch" else [str(top / "torch")]
        command = [sys.executable, *launch, str(top / "script.py"), str(top / name), *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr
    return top / "torch", top / "sluice"


@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
def test_results_and_gradients_are_torchs(runs, model):
    theirs, ours = (dict(np.load(folder / f"{model}.npz")) for folder in runs)
    assert theirs.keys() == ours.keys() and len(ours) > 20
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    np.testing.assert_allclose(ours["logits"], theirs["logits"], rtol=1e-4, atol=1e-4)
    names = [n for n in ours if n.startswith("grad.")]
    largest = max(np.abs(theirs[name]).max() for name in names)
    for name in names:  # those of keys' biases are zero but for rounding
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-5 * largest, err_msg=name)


def test_generate_gives_torchs_tokens(runs):
    theirs, ours = (dict(np.load(folder / "gpt2.npz")) for folder in runs)
    np.testing.assert_array_equal(ours["tokens"], theirs["tokens"])
    np.testing.assert_array_equal(ours["no_cache"], theirs["tokens"])
    assert len(set(ours["tokens"][0, 12:])) > 2  # not one token for ever


@pytest.mark.parametrize("when", ["first", "then"])
@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
def test_torch_reads_the_states(runs, model, when):
    """As drawn from a seed, before another state was taken, and after the step."""
    theirs, ours = (torch.load(folder / f"{model}.{when}.pt", weights_only=True) for folder in runs)
    assert list(theirs) == list(ours)
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype and ours[name].shape == value.shape
        bound = {"rtol": 1e-6, "atol": 1e-6} if when == "first" else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(ours[name], value, **bound)
