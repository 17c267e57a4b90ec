import os

import numpy as np
import torch
from transformers import (AutoModelForCausalLM, BertConfig, BertForSequenceClassification, GPT2Config, LlamaConfig, T5Config,
                          T5ForConditionalGeneration, ViTConfig, ViTForImageClassification)

draw = np.random.default_rng(0)
ids = torch.tensor(draw.integers(3, 60, size=(2, 10)))
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)
results = {}


def tried(name, model, **inputs):
    """Results, and the gradient of all parameters as one number each."""
    model.eval()
    out = model(**inputs)
    out.loss.backward()
    results[f"{name}.logits"], results[f"{name}.loss"] = out.logits.detach().numpy(), out.loss.detach().numpy()
    results[f"{name}.gradients"] = np.array([float(p.grad.norm()) for p in model.parameters() if p.grad is not None], np.float32)


torch.manual_seed(0)
tried("bert", BertForSequenceClassification(BertConfig(vocab_size=60, initializer_range=0.2, **small)), input_ids=ids,
      labels=torch.tensor([0, 1]))
llama = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=60, initializer_range=0.2, num_key_value_heads=2, **small))
tried("llama", llama, input_ids=ids, labels=ids)
gpt2 = AutoModelForCausalLM.from_config(GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2))
tried("gpt2", gpt2, input_ids=ids, labels=ids)
tried("t5", T5ForConditionalGeneration(T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                                                   decoder_start_token_id=0)), input_ids=ids, labels=ids)
tried("vit", ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, initializer_range=0.2, num_labels=3, **small)),
      pixel_values=torch.tensor(draw.normal(size=(2, 3, 32, 32)).astype(np.float32)), labels=torch.tensor([0, 2]))
ways = {"greedy": dict(do_sample=False), "beams": dict(do_sample=False, num_beams=3), "sampled": dict(do_sample=True, top_k=1)}
for name, model in {"llama": llama, "gpt2": gpt2}.items():
    for way, options in ways.items():
        said = model.generate(ids[:1], max_new_tokens=8, pad_token_id=0, eos_token_id=None, **options)
        results[f"{name}.{way}"] = said.numpy()
for name, model, options in (("one file", llama, {}), ("shards", llama, dict(max_shard_size="20KB")), ("tied", gpt2, {})):
    model.save_pretrained(name, **options)
    again = AutoModelForCausalLM.from_pretrained(name).eval()
    with torch.no_grad():
        results[f"read again: {name}"] = again(input_ids=ids).logits.numpy()
    results[f"files: {name}"] = np.array(sorted(os.listdir(name)))
half = AutoModelForCausalLM.from_pretrained("shards", dtype=torch.bfloat16)
results["read in bfloat16"] = np.array([float(p.float().sum()) for p in half.parameters()], np.float32)
