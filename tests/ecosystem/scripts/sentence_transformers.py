import torch
from sentence_transformers import SentenceTransformer, models
from tokenizers import Tokenizer, models as token_models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

words = "[PAD] [UNK] [CLS] [SEP] a cat sat on the mat dog ran far away".split()
tokenizer = Tokenizer(token_models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
                        sep_token="[SEP]").save_pretrained("net")
torch.manual_seed(0)
BertModel(BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
                     initializer_range=0.2)).save_pretrained("net")
word = models.Transformer("net")
net = SentenceTransformer(modules=[word, models.Pooling(32, "mean"), models.Normalize()], device="cpu")
said = net.encode(["a cat sat on the mat", "the dog ran", "far away"])
results = {"said": said, "alike": net.similarity(said, said).numpy()}
