"""Answers of a sweep are shared, merged and taken up again; configs become smaller where their models are large."""

import os
from types import SimpleNamespace

import pytest
import torch

from ecosystem import sweep
from ecosystem.compare import STEPS, UNTRIED
from ecosystem.transformers_configs import changed, small, smaller

ZOO = "a_zoo"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "FOLDER", tmp_path)
    (tmp_path / ZOO).mkdir()
    return tmp_path / ZOO


def test_what_has_an_answer_is_not_tried_again():
    assert list(sweep.claimed(ZOO, ["a", "b"], STEPS)) == ["a", "b"]
    sweep.write(ZOO, "a", {"graph": "wrong"}, STEPS)
    assert list(sweep.claimed(ZOO, ["a", "b"], STEPS)) == ["b"]


def test_a_case_is_one_programs_at_a_time(folder):
    mine = sweep.claimed(ZOO, ["a", "b"], STEPS)
    assert next(mine) == "a" and (folder / "a.claim").read_text().split()[0] == str(os.getpid())
    assert list(sweep.claimed(ZOO, ["a", "b"], STEPS)) == ["b"]
    assert next(mine) == "b" and not (folder / "a.claim").exists()


def test_steps_are_answered_one_after_the_other():
    some = ("forward", "gradient")
    sweep.write(ZOO, "a", {"gradient": "wrong", "graph": UNTRIED, "training": UNTRIED}, some)
    assert sweep.answered(ZOO, "a", some) and not sweep.answered(ZOO, "a", STEPS)
    sweep.write(ZOO, "a", {"forward": UNTRIED, "gradient": UNTRIED, "training": "slow"}, ("graph", "training"))
    assert sweep.answers(ZOO) == {"a": {"gradient": "wrong", "training": "slow"}} and sweep.answered(ZOO, "a", STEPS)
    sweep.write(ZOO, "a", {"all": "the process ended: SIGKILL"}, ("training",))
    assert sweep.answers(ZOO)["a"] == {"gradient": "wrong", "training": "the process ended: SIGKILL"}


class Config(SimpleNamespace):
    model_type = "any"


def test_numbers_of_a_large_model_become_smaller_together():
    config = Config(wide=4096, eos_token_id=4096, inner=Config(also=4096, other=16))
    changes = smaller(config, [torch.zeros(16, 16), torch.zeros(4096, 16)])
    config = changed(config, changes)
    assert (config.wide, config.inner.also, config.inner.other, config.eos_token_id) == (128, 128, 16, 4096)
    assert smaller(config, [torch.zeros(64, 16)]) == [], "none is large"


def test_a_config_has_two_layers_few_heads_and_one_kind_of_layer_each():
    config = small(Config(num_hidden_layers=12, hidden_size=768, num_attention_heads=12, num_key_value_heads=None, kv_lora_rank=512,
                          layer_types=["full"] * 6 + ["sliding"] * 6, image_size=224, patch_size=14, depths=None), 0)
    assert (config.num_hidden_layers, config.hidden_size, config.num_attention_heads, config.num_key_value_heads) == (2, 32, 4, 4)
    assert config.layer_types == ["full", "sliding"] and (config.image_size, config.patch_size) == (64, 16)
