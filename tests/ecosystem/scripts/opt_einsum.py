import opt_einsum
import torch

torch.manual_seed(0)
a, b, c = (torch.rand(3, 4, requires_grad=True), torch.rand(4, 5), torch.rand(5, 3))
said = opt_einsum.contract("ij,jk,kl->il", a, b, c, backend="torch")
said.square().sum().backward()
product = opt_einsum.contract_expression("ij,jk->ik", (3, 4), (4, 5))
results = {"said": said.detach().numpy(), "gradient": a.grad.numpy(), "product": product(a.detach(), b, backend="torch").numpy(),
           "trace": opt_einsum.contract("ij,ji->", b, b.mT, backend="torch").item()}
