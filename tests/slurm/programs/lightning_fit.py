"""An unmodified Lightning script, as its authors write one for Slurm."""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 2)), batch_size=2)


trainer = Trainer(
    num_nodes=int(sys.argv[1]),
    devices=int(sys.argv[2]),
    accelerator="cpu",
    strategy="ddp",
    max_steps=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Model())
environment = type(trainer.strategy.cluster_environment).__name__
print(
    "lightning", trainer.global_rank, trainer.world_size, trainer.local_rank, trainer.node_rank, environment, flush=True
)
