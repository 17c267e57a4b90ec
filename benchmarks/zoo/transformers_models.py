"""Nets of the `transformers` package, of small configurations. A function returns (net, inputs, targets, loss of the
answer)."""
import torch
import transformers as package

package.logging.set_verbosity_error()  # a line of a log takes the time, which breaks a trace
TEXT = dict(vocab_size=100, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
            max_position_embeddings=64)
STILL = dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
PICTURE = dict(image_size=32, patch_size=8, num_labels=5)


class Loss(torch.nn.Module):
    """The loss that a net of the package computes of its arguments, by their names."""

    def __init__(self, net, *names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *tensors):
        return self.net(**dict(zip(self.names, tensors))).loss


def of(kind, config, **inputs):
    net = getattr(package, kind)(getattr(package, config.pop("config"))(**config))
    return Loss(net, *inputs), tuple(inputs.values()), (), lambda loss: loss


def ids(rows=4, length=16):
    return torch.randint(2, 100, (rows, length))


def mask(rows=4, length=16):
    """Each row is a token shorter than the one before."""
    return (torch.arange(length)[None] < length - torch.arange(rows)[:, None]).long()


def writes(kind, **config):
    """Training keeps no keys and values for words to come."""
    text = ids()
    return of(kind, dict(use_cache=False, **config), input_ids=text, attention_mask=mask(), labels=text)


def judges(kind, **config):
    return of(kind, dict(num_labels=3, **config), input_ids=ids(), attention_mask=mask(), labels=torch.tensor([0, 2, 1, 1]))


def sees(kind, side, **config):
    return of(kind, dict(config), pixel_values=torch.randn(4, 3, side, side), labels=torch.tensor([1, 4, 0, 2]))


def bert():
    return judges("BertForSequenceClassification", config="BertConfig", **TEXT, **STILL)


def roberta():
    return judges("RobertaForSequenceClassification", config="RobertaConfig", **TEXT, **STILL)


def albert():
    return judges("AlbertForSequenceClassification", config="AlbertConfig", embedding_size=24, classifier_dropout_prob=0,
                  **TEXT, **STILL)


def electra():
    return writes("ElectraForMaskedLM", config="ElectraConfig", embedding_size=24, **TEXT, **STILL)


def distilbert():
    return judges("DistilBertForSequenceClassification", config="DistilBertConfig", vocab_size=100, dim=48, n_layers=2,
                  n_heads=4, hidden_dim=96, max_position_embeddings=64, dropout=0, attention_dropout=0, seq_classif_dropout=0)


def gpt2():
    return writes("GPT2LMHeadModel", config="GPT2Config", vocab_size=100, n_embd=48, n_layer=2, n_head=4, n_positions=64,
                  embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)


def opt():
    return writes("OPTForCausalLM", config="OPTConfig", vocab_size=100, hidden_size=48, num_hidden_layers=2, ffn_dim=96,
                  num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=48, dropout=0)


def llama_lm():
    return writes("LlamaForCausalLM", config="LlamaConfig", num_key_value_heads=2, **TEXT)


def t5():
    config = dict(config="T5Config", vocab_size=100, d_model=48, d_kv=12, d_ff=96, num_layers=2, num_heads=4, dropout_rate=0,
                  decoder_start_token_id=0, pad_token_id=0, use_cache=False)
    return of("T5ForConditionalGeneration", config, input_ids=ids(), labels=ids())


def resnet_hf():
    return sees("ResNetForImageClassification", 48, config="ResNetConfig", embedding_size=16, hidden_sizes=[16, 32, 48, 64],
                depths=[1, 2, 2, 1], num_labels=5)


def vit_hf():
    config = {key: TEXT[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")}
    return sees("ViTForImageClassification", 32, config="ViTConfig", **config, **STILL, **PICTURE)


def convnext_hf():
    return sees("ConvNextForImageClassification", 32, config="ConvNextConfig", hidden_sizes=[16, 24, 32, 48],
                depths=[1, 1, 2, 1],
                drop_path_rate=0, num_labels=5)


MODELS = (bert, roberta, albert, electra, distilbert, gpt2, opt, llama_lm, t5, resnet_hf, vit_hf, convnext_hf)
