"""The ``model`` block: which pretrained model is adapted, and where it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool, model_validator

from experiments.blocks import Closed, Count

Name = Annotated[str, Field(pattern=r"^[\w.-]{1,40}$")]


class BaseModel(Closed):
    """A causal language model of transformers, frozen. The first place of ``path``, ``data``, ``source`` that is set
    is looked at; ``docs/language.md`` says how each is read."""

    name: Name
    """What records and tables call it."""
    path: str | None = None
    """A local folder of safetensors, or of the GGUF ``file``."""
    data: Literal["smollm2", "stories260k"] | None = None
    """The data set below the data root that holds it (``make data ARGS=...`` fetches it)."""
    source: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    """Its repository on the Hugging Face hub; where ``path`` or ``data`` is set, a note of where it is from."""
    revision: str | None = None
    """Branch, tag or commit there; null for ``main``."""
    file: Annotated[str, Field(pattern=r"^[^/]+\.gguf$")] | None = None
    """The GGUF file of ``path``; it is converted once, into the data root."""
    parameters: Count | None = None
    """About how many it has, for a look at the memory before it is loaded; null where that is not known."""
    kv_heads: Count | None = None
    """Key/value heads of a layer: what pruning counts attention in."""
    ffn: Count | None = None
    """Neurons of a feed-forward block."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the frozen weights and the activations; what is learned is float32."""
    gradient_checkpointing: StrictBool = False
    """Compute activations again in the backward pass: about a third more work for less memory."""

    @model_validator(mode="after")
    def _has_a_place(self) -> BaseModel:
        if self.path is None and self.data is None and self.source is None:
            raise ValueError(f"model {self.name}: say where it is: model.path=FOLDER, or model.source=OWNER/NAME")
        if self.file is not None and self.path is None:
            raise ValueError(f"model.file={self.file} is looked for in the folder model.path, which is not set")
        return self
