"""Transformer language models from a local Hugging Face folder, and copies with layers skipped."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from multidraft.errors import InputError
from multidraft.models import cache
from multidraft.models.base import Tokenizer


class Transformer:
    """A causal language model of transformers, on the CPU in float32.

    Parameters
    ----------
    name : str
        What tables call it.
    module : transformers.PreTrainedModel
        The network; `decode` and other torch code may use it directly.
    tokenizer : Tokenizer
        Its tokenizer.
    identity : dict
        What tells its weights from any others (JSON).

    Attributes
    ----------
    cache_argument : str
        What the network's forward pass calls its key-value cache.
    places_tokens : bool
        Whether the network takes the position of every token.
    """

    def __init__(self, name: str, module: Any, tokenizer: Tokenizer, identity: dict[str, Any]):
        self.name = name
        self.module = module.eval()
        self.tokenizer = tokenizer
        self.vocabulary = int(module.get_output_embeddings().weight.shape[0])
        self._identity = identity
        # transformers renamed it on the way to version 5.40.
        known = inspect.signature(module.forward).parameters
        self.cache_argument = "cache" if "cache" in known else "past_key_values"
        self.places_tokens = "position_ids" in known

    @classmethod
    def from_folder(cls, folder: Path, name: str | None = None) -> Transformer:
        """Load the model and the tokenizer in `folder`; nothing is looked up elsewhere.

        Raises
        ------
        InputError
            `folder` does not hold a causal language model that transformers can read.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            module = AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, dtype=torch.float32
            )
        except (OSError, ValueError, KeyError) as fault:
            reason = str(fault).strip().split("\n")[0]
            raise InputError(
                f"{folder} does not hold a causal language model with its tokenizer: {reason}"
            ) from None
        name = name or folder.name
        return cls(name, module, tokenizer, {"kind": "transformer", "sha256": weights_hash(folder)})

    @property
    def start(self) -> list[int]:
        """The beginning-of-sequence token if the tokenizer puts one before every text."""
        empty = self.tokenizer.encode("", add_special_tokens=True)
        first = getattr(self.tokenizer, "bos_token_id", None)
        return [first] if first is not None and empty[:1] == [first] else []

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return len(_layers(self.module))

    def logits(
        self, tokens: Int[np.ndarray, "*batch T"], positions: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "*batch m V"]:
        """Return float32 logits after each prefix; see `multidraft.models.Model.logits`."""
        ids = self.ids(np.atleast_2d(tokens))
        keep = 0 if positions is None else torch.as_tensor(positions)
        with torch.inference_mode():
            out = self.module(input_ids=ids, use_cache=False, logits_to_keep=keep).logits
        rows = out.float().numpy()
        return rows if np.ndim(tokens) == 2 else rows[0]

    def step(
        self, tokens: Int[np.ndarray, "B T"], state: Any = None
    ) -> tuple[Float[np.ndarray, "B V"], Any]:
        """Return the logits after `tokens` and the key-value cache; `state` is changed in place."""
        from transformers import DynamicCache

        ids = self.ids(tokens)
        state = DynamicCache(config=self.module.config) if state is None else state
        cached = {self.cache_argument: state}
        with torch.inference_mode():
            out = self.module(input_ids=ids, use_cache=True, logits_to_keep=1, **cached)
        return out.logits[:, -1].float().numpy(), state

    def ids(self, tokens: Int[np.ndarray, "B T"]) -> torch.Tensor:
        """Return tokens as a tensor; InputError unless all are token ids."""
        if tokens.size == 0 or tokens.min() < 0 or tokens.max() >= self.vocabulary:
            raise InputError(
                f"{self.name} takes one or more token ids, each in 0..{self.vocabulary - 1}."
            )
        return torch.as_tensor(tokens, dtype=torch.int64)

    def identity(self) -> dict[str, Any]:
        """Return name, kind and hash of the weights."""
        return {"name": self.name, **self._identity}

    def without(self, skipped: Sequence[int], name: str) -> Transformer:
        """Return a copy that skips decoder layers and shares every weight with this model.

        Parameters
        ----------
        skipped : sequence of int
            Layers to leave out, counted from 0 in this model.
        name : str
            Name of the copy.

        Raises
        ------
        InputError
            A layer that does not exist or is given twice, or no layer left.
        """
        self._check_skipped(skipped)
        shared = itertools.chain(self.module.parameters(), self.module.buffers())
        module = copy.deepcopy(self.module, {id(tensor): tensor for tensor in shared})
        kept = [index for index in range(self.layers) if index not in skipped]
        _keep_layers(module, kept)
        identity = {"kind": "skip", "skipped": list(skipped), "of": self.identity()}
        return Transformer(name, module, self.tokenizer, identity)

    def _check_skipped(self, skipped: Sequence[int]) -> None:
        last = self.layers - 1
        if not skipped or len(set(skipped)) < len(skipped) or len(skipped) > last:
            raise InputError(f"skip between 1 and {last} different layers of {self.name}.")
        if min(skipped) < 0 or max(skipped) > last:
            raise InputError(
                f"{self.name} has layers 0..{last}: it cannot skip {max(skipped, key=abs)}."
            )


def _layers(module: Any) -> torch.nn.ModuleList:
    decoder = module.get_decoder()
    for attribute in ("layers", "h"):  # Llama and its kin; GPT-2 and its kin
        if isinstance(found := getattr(decoder, attribute, None), torch.nn.ModuleList):
            return found
    raise InputError(f"layers of a {type(module).__name__} cannot be skipped: draft with another.")


def _keep_layers(module: Any, kept: list[int]) -> None:
    layers = _layers(module)
    chosen = [layers[index] for index in kept]
    del layers[:]
    layers.extend(chosen)
    # The number of a layer is its place in the key-value cache.
    for index, layer in enumerate(chosen):
        for part in layer.modules():
            if hasattr(part, "layer_idx"):
                setattr(part, "layer_idx", index)  # noqa: B010 (torch types attributes as tensors)
    config = module.config
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]


def weights_hash(folder: Path) -> str:
    """SHA-256 of a model folder's weights: the one its marker states, else that of its files."""
    if stated := cache.provenance(folder).get("sha256"):
        return stated
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
