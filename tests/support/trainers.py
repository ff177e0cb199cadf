"""Trainings of a small model by the trainers of transformers and Lightning."""

import pytest
import torch
from torch import nn

import ngn

X = torch.linspace(-2, 2, 64).unsqueeze(-1)
SIZES = {"mlp": ngn.Width(12)}
QUIET = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu", "enable_model_summary": False}


class Model(nn.Module):
    """A model that returns loss and output, as transformers' Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mlp = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))

    def forward(self, x, y=None):
        output = self.mlp(x)
        logits = torch.cat([output, -2 * output], -1)
        return output if y is None else {"loss": nn.functional.mse_loss(output, y), "logits": logits}


DATA = [{"x": x, "y": x.sin()} for x in X]
LOADER = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, X.sin()), batch_size=16)


def in_transformers(learner, folder, steps, model=None, at=None, others=(), accumulate=1, how=None, data=DATA, **more):
    """Train with transformers' Trainer, from the checkpoint of a step ``at`` on."""
    transformers = pytest.importorskip("transformers")
    from ngn.integrations.transformers import SizesCallback

    arguments = transformers.TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=16, train_sampling_strategy="sequential",
        learning_rate=1e-3, lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[], disable_tqdm=True,
        use_cpu=True, dataloader_pin_memory=False, gradient_accumulation_steps=accumulate,
        **{"save_steps": 1} | more,
    )  # fmt: skip
    callbacks = [SizesCallback(learner, lr=0.2, **how or {}), *others]
    trainer = transformers.Trainer(model or learner.model, arguments, None, data, data, callbacks=callbacks)
    trainer.train(**({} if at is None else {"resume_from_checkpoint": f"{folder}/checkpoint-{at}"}))


def lightning_module(lightning):
    class Module(lightning.LightningModule):
        def __init__(self, model=None):
            super().__init__()
            self.model = Model() if model is None else model

        def training_step(self, batch):
            return self.model(*batch)["loss"]

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    return Module


def in_lightning(learner, folder, steps, model=None, at=None, others=(), accumulate=1, how=None, **settings):
    """The same with Lightning's Trainer, which keeps a checkpoint of every epoch of four steps; return it."""
    lightning = pytest.importorskip("lightning.pytorch")
    from ngn.integrations.lightning import SizesCallback

    keep = lightning.callbacks.ModelCheckpoint(folder, "{step}", every_n_train_steps=4, save_top_k=-1)
    callbacks = [SizesCallback(learner, lr=0.2, **how or {}), keep, *others]
    settings = {"max_steps": steps, "accumulate_grad_batches": accumulate} | settings
    trainer = lightning.Trainer(callbacks=callbacks, **QUIET, **settings)
    resumed = {} if at is None else {"ckpt_path": f"{folder}/step={at}.ckpt"}
    trainer.fit(lightning_module(lightning)(model or learner.model), LOADER, **resumed)
    return trainer
