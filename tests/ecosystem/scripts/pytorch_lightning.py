import pytorch_lightning as pl
import torch


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net, self.losses = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), []

    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.rand(24, 4), torch.rand(24, 1))
loader, module = torch.utils.data.DataLoader(data, batch_size=8), Module()
quiet = dict(accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
trainer = pl.Trainer(max_epochs=2, **quiet)
trainer.fit(module, loader)
trainer.save_checkpoint("half.ckpt")
again = Module()
pl.Trainer(max_epochs=4, **quiet).fit(again, loader, ckpt_path="half.ckpt")
results = {"losses": module.losses, "resumed": again.losses, "weight": again.net[0].weight.detach().numpy()}
