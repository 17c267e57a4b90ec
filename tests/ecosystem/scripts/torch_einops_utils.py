import torch
from torch_einops_utils import exclusive_cumsum, lens_to_mask, masked_mean, pad_at_dim, pad_sequence, slice_at_dim

torch.manual_seed(0)
rows = [torch.rand(3, 2), torch.rand(5, 2)]
padded, lengths = pad_sequence(rows, dim=0, return_lens=True)
mask = lens_to_mask(lengths)
weight = torch.rand(2, requires_grad=True)
mean = masked_mean((padded * weight).sum(-1), mask)
mean.backward()
results = {"padded": padded.numpy(), "mask": mask.numpy(), "mean": mean.item(), "gradient": weight.grad.numpy(),
           "sums": exclusive_cumsum(torch.arange(4.0)).numpy(), "wider": pad_at_dim(rows[0], (1, 2), dim=0, value=-1.0).numpy(),
           "part": slice_at_dim(rows[1], slice(1, 3), dim=0).numpy()}
