import torch
from jaxtyping import Float, Int

weight = torch.ones(3, 2, requires_grad=True)


def scaled(x: Float[torch.Tensor, "rows columns"], ids: Int[torch.Tensor, "rows"]) -> Float[torch.Tensor, "rows out"]:
    return (x @ weight) * ids[:, None]


said = scaled(torch.arange(6.0).reshape(2, 3), torch.tensor([1, 2]))
said.sum().backward()
kinds = [Float[torch.Tensor, "2 3"], Float[torch.Tensor, "a a"], Int[torch.Tensor, "..."], Float[torch.Tensor, "*rows 3"]]
given = [torch.zeros(2, 3), torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64), torch.zeros(4, 1, 3)]
results = {"said": said.detach().numpy(), "gradient": weight.grad.numpy(),
           "fits": [[isinstance(tensor, kind) for kind in kinds] for tensor in given]}
