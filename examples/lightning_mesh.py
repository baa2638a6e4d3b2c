"""`lightning.Trainer` on a mesh: four ranks, a checkpoint and early stopping, as in any Lightning
program.

The script makes the hosts, and gives them to the trainer's strategy. All else is Lightning's.

    pip install 'pymonarch[lightning]'
    python examples/lightning_mesh.py

What to look for:

* ``MeshStrategy(hosts)``          where the ranks are started: `devices` on each of `num_nodes` hosts
* ``trainer.callback_metrics``     is here when `fit` returns, as are weights and the state of callbacks
* ``configure(preload=[...])``     Lightning and torch are imported once, not once per rank
"""

import logging
import tempfile
import warnings
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from monarch.actor import this_host
from monarch.config import configure
from monarch.lightning import MeshStrategy


class Sum(lightning.LightningModule):
    """Learns to add four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        (inputs,) = batch
        loss: torch.Tensor = (self.layer(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        self.log("loss", loss, on_epoch=True, on_step=False, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2)


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    configure(preload=["torch._dynamo", "lightning"], host_spawn_ready_timeout="2m")
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(256, 4)), batch_size=16)
    model = Sum()
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = ModelCheckpoint(folder, monitor="loss")
        stopping = EarlyStopping("loss", stopping_threshold=1e-3, check_on_train_epoch_end=True)
        # region trainer
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=4,
            num_nodes=1,
            strategy=MeshStrategy(this_host(), process_group_backend="gloo"),
            max_epochs=40,
            callbacks=[checkpoints, stopping],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(model, data)
        # endregion
        best = torch.load(checkpoints.best_model_path, weights_only=True)["state_dict"]
    loss = float(trainer.callback_metrics["loss"])
    print(f"loss: {loss:.5f}, stopped after epoch {stopping.stopped_epoch}")
    print("weights:", [round(value, 2) for value in model.layer.weight.flatten().tolist()])
    assert loss < 1e-3, "it has not learned to add"
    assert 0 < stopping.stopped_epoch < 40, "the state of a callback has not come back"
    assert torch.allclose(best["layer.weight"], model.layer.weight), (
        "the checkpoint has other weights"
    )


if __name__ == "__main__":
    main()
