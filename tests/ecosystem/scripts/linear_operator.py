import torch
from linear_operator.operators import DenseLinearOperator, DiagLinearOperator, KroneckerProductLinearOperator, ToeplitzLinearOperator

torch.manual_seed(0)
root = torch.rand(5, 5, requires_grad=True)
noise, right = torch.full((5,), 0.5, requires_grad=True), torch.rand(5, 2)
whole = DenseLinearOperator(root @ root.mT) + DiagLinearOperator(noise)
solved = whole.solve(right)
quadratic, logdet = whole.inv_quad_logdet(right, logdet=True)
(solved.sum() + quadratic + logdet).backward()
small = DenseLinearOperator(torch.rand(2, 2))
results = {"solved": solved.detach().numpy(), "quadratic": quadratic.item(), "logdet": logdet.item(), "gradient": root.grad.numpy(),
           "noise": noise.grad.numpy(), "kronecker": KroneckerProductLinearOperator(small, small).to_dense().numpy(),
           "toeplitz": (ToeplitzLinearOperator(torch.tensor([4.0, 1.0, 0.5])) @ torch.rand(3, 2)).numpy()}
