import torch
from x_transformers import Decoder, TransformerWrapper, XTransformer

torch.manual_seed(0)
net = TransformerWrapper(num_tokens=30, max_seq_len=16, attn_layers=Decoder(dim=32, depth=2, heads=2, rotary_pos_emb=True, attn_flash=False))
ids = torch.randint(0, 30, (2, 12))
said = net.eval()(ids)
torch.nn.functional.cross_entropy(said[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
both = XTransformer(dim=32, enc_num_tokens=30, enc_depth=1, enc_heads=2, enc_max_seq_len=16, dec_num_tokens=30, dec_depth=1, dec_heads=2,
                    dec_max_seq_len=16).eval()
results = {"logits": said.detach().numpy(), "loss": both(ids, ids).detach().numpy(),
           "gradient": net.token_emb.emb.weight.grad.numpy()}
