"""`lightning.Trainer` on procs of ours, in a program of its own: what Lightning imports is not for
the other tests.
"""

from __future__ import annotations

import importlib.util

import pytest

from helpers.scripts import run_script

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("lightning") is None, reason="Lightning is not installed"
    ),
    pytest.mark.timeout(300),
]
MODULE = """
import warnings
warnings.simplefilter("ignore")
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
from monarch.actor import this_host
from monarch.config import configure
from monarch.lightning import MeshStrategy

class Module(lightning.LightningModule):
    def __init__(self, fails=False):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.fails = fails
    def training_step(self, batch, index):
        if self.fails and self.global_rank == 1:
            raise ValueError("this batch is bad")
        loss = self.layer(batch[0]).square().mean()
        self.log("ranks", float(self.trainer.world_size))
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def trainer(devices, nodes=1):
    return lightning.Trainer(
        accelerator="cpu", devices=devices, num_nodes=nodes, max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        strategy=MeshStrategy(this_host(), process_group_backend="gloo"),
    )

data = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=2)

def main():
    configure(preload=["torch._dynamo", "lightning"], host_spawn_ready_timeout="4m")
"""
RUN = '\nif __name__ == "__main__":\n    main()\n'


def said_by(*lines: str) -> str:
    done = run_script(MODULE + "".join(f"    {line}\n" for line in lines) + RUN, timeout=280)
    assert done.exit_code == 0, done.stderr
    # torch keeps a folder for its compiler once that is imported
    assert [each for each in done.left_behind if "torchinductor" not in each] == []
    return done.stdout


def test_after_fit_weights_and_metrics_of_all_ranks_are_in_the_client() -> None:
    said = said_by(
        "module = Module()",
        "before = module.layer.weight.detach().clone()",
        "one = trainer(2)",
        "one.fit(module, data)",
        "print('metrics', float(one.callback_metrics['ranks']), one.state.status.value)",
        "print('moved', not torch.equal(before, module.layer.weight))",
    )
    assert "metrics 2.0 finished" in said
    assert "moved True" in said


def test_an_error_of_one_rank_is_raised_and_ends_the_others_in_their_collective() -> None:
    said = said_by(
        "try:",
        "    trainer(2).fit(Module(fails=True), data)",
        "except Exception as error:",
        "    print('raised', 'this batch is bad' in str(error))",
    )
    assert "raised True" in said


def test_hosts_that_are_none_or_too_few_are_refused() -> None:
    said = said_by(
        "for make in (lambda: MeshStrategy(4), lambda: MeshStrategy(this_host(),"
        " start_method='fork')):",
        "    try:",
        "        make()",
        "    except TypeError as error:",
        "        print(error)",
        "try:",
        "    trainer(2, nodes=3).fit(Module(), data)",
        "except ValueError as error:",
        "    print(error)",
    )
    assert "takes a HostMesh, as this_host() returns, got 4" in said
    assert "leave out start_method" in said
    assert "Trainer(num_nodes=3) needs 3 hosts, its MeshStrategy has 1" in said
