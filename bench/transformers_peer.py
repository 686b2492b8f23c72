"""transformers on the same GGUF, as plain layers, for comparison figures and golden values.

Needs `make bench-peers`.
"""

from pathlib import Path

import torch
import transformers
from torch import nn


def load(path: Path, dtype: torch.dtype, **options: str) -> transformers.PreTrainedModel:
    """Load a GGUF with every packed module replaced by a plain one of `dtype`.

    transformers keeps GGUF weights packed and unpacks them in every call. That would be slow
    beside weights unpacked once; they are read out by feeding the modules the identity.
    """
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, **options
    ).eval()
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "GgufLinear":
            plain = nn.Linear(module.in_features, module.out_features, bias=False)
            plain.weight = nn.Parameter(module(torch.eye(module.in_features)).T.contiguous())
            model.set_submodule(name, plain)
        elif type(module).__name__ == "GgufEmbedding":
            rows = module(torch.arange(module.num_embeddings))
            model.set_submodule(name, nn.Embedding.from_pretrained(rows.clone()))
    return model.to(dtype)
