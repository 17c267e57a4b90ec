import torch
from peft import LoraConfig, get_peft_model

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.second(self.first(x).relu())


model = get_peft_model(Net(), LoraConfig(r=2, target_modules=["first"], init_lora_weights=False))
x = torch.rand(5, 6)
model(x).square().sum().backward()
trained = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.requires_grad}
before = model(x).detach().numpy()
results = {"before": before, "merged": model.merge_and_unload()(x).detach().numpy(), **trained}
