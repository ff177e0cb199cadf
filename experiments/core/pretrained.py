"""The ``model`` block: which pretrained model to adapt, and where to find it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from experiments.core.blocks import Closed, Count

Name = Annotated[str, Field(pattern=r"^[\w.-]{1,40}$")]


def _in_the_folder(file: str) -> str:
    if "/" in file or not file.endswith(".gguf") or file == ".gguf":
        raise ValueError("must be the name of a file in model.path that ends in .gguf, without a folder")
    return file


class BaseModel(Closed):
    """A causal language model of transformers, or another trained network to make smaller.

    It is read from the first of ``path``, ``data``, ``source`` set.

    ``docs/language.md`` says how each is read.
    """

    name: Name
    """Its name in records and tables."""
    path: str | None = None
    """A local folder with safetensors, or with the GGUF ``file``."""
    data: Literal["smollm2", "resnets"] | None = None
    """The data set below the data root that holds it (``make data ARGS=...`` fetches it)."""
    source: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """Its repository on the Hugging Face hub. If ``path`` or ``data`` is set, this only documents the origin."""
    revision: str | None = None
    """Branch, tag or commit of the repository; null for ``main``."""
    package: Literal["torchvision", "timm"] | None = None
    """The package that makes a classifier of images; ``path`` is then a file of weights, and null for new ones."""
    constructor: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] | None = None
    """The name of the model in ``package``, such as ``resnet18``."""
    file: Annotated[str, AfterValidator(_in_the_folder)] | None = None
    """The GGUF file in ``path``. It is converted once, into the data root."""
    parameters: Count | None = None
    """Approximate number of parameters, to check the memory before loading; null if unknown."""
    kv_heads: Count | None = None
    """Key/value heads of a layer, the unit in which attention is pruned."""
    ffn: Count | None = None
    """Neurons of a feed-forward block."""
    hidden: Count | None = None
    """Width of the residual stream, which describes the model, as the next two do."""
    head_dim: Count | None = None
    """Width of a head."""
    vocab: Count | None = None
    """Rows of the embedding."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the frozen weights and the activations. Learned parameters are float32, except with adamw8bit."""
    gradient_checkpointing: StrictBool = False
    """Recompute activations in the backward pass: less memory for about a third more work."""

    @model_validator(mode="after")
    def _has_a_place(self) -> BaseModel:
        if self.package is not None and self.constructor is None:
            raise PydanticCustomError(
                "incomplete", f"model={self.name} makes many models: add one, such as model.constructor=resnet18"
            )
        if self.package is not None:
            return self
        if self.constructor is not None:
            raise ValueError(f"model={self.name} has no constructors: use model=torchvision or model=timm")
        if self.path is None and self.data is None and self.source is None:
            raise ValueError(f"model {self.name} has no source: type model.path=FOLDER or model.source=OWNER/NAME")
        if self.file is not None and self.path is None:
            raise ValueError(f"model.file={self.file} needs its folder: type model.path=FOLDER")
        return self
