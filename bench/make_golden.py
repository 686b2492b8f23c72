"""Write tests/model_host/engine/golden/smollm2.json: results of transformers on the same GGUF.

Run by hand, in an environment of its own; the tests need none of these packages:

    pip install torch==2.13.0 transformers accelerate gguf
    python -m bench.make_golden MODEL.gguf tests/model_host/engine/golden/smollm2.json

fp32, plain linear layers, eager attention. Of the last position's logits it keeps the 64
best, every 768th, and the vector's sum and Euclidean length.
"""

import json
import sys
from pathlib import Path

import torch
import transformers

from bench.transformers_peer import load

PROMPTS = [
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nList three primes over "
    "100 and explain why 1009 is one.<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Der schnelle braune Fuchs springt über den faulen Hund. 敏捷的棕色狐狸 🦊",
    "Once upon a time there was a lighthouse keeper who counted 12345 waves. " * 40,
]
TEXTS = [
    "Hello, world! It's 2026; don't panic.",
    "  leading and trailing  ",
    "\n\n\ttabs\r\nand 3.14159 digits 007",
    "naïve café — “quotes” … 東京 한국어 🦊👩‍👩‍👧",
    "x = [i**2 for i in range(10)]  # comment",
]
GREEDY_TOKENS = 64


def describe(model: transformers.PreTrainedModel, ids: list[int]) -> dict[str, object]:
    """Compute the last position's logits and the greedy continuation."""
    output = model(torch.tensor([ids]), use_cache=True)
    logits = output.logits[0, -1].double()
    best = torch.topk(logits, 64)
    greedy = []
    for _ in range(GREEDY_TOKENS):
        token = int(output.logits[0, -1].argmax())
        greedy.append(token)
        output = model(
            torch.tensor([[token]]), past_key_values=output.past_key_values, use_cache=True
        )
    return {
        "ids": ids,
        "best_ids": best.indices.tolist(),
        "best_logits": [round(value, 6) for value in best.values.tolist()],
        "every_768th": [round(value, 6) for value in logits[::768].tolist()],
        "sum": float(logits.sum()),
        "length": float(logits.norm()),
        "greedy": greedy,
    }


def main() -> None:
    """Write the file named by the second argument from the model named by the first."""
    path, target = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    with torch.inference_mode():
        model = load(path, torch.float32, attn_implementation="eager")
        golden = {
            "made_with": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "prompts": [
                {"text": text}
                | describe(model, tokenizer(text, add_special_tokens=False).input_ids)
                for text in PROMPTS
            ],
            "texts": [
                {"text": text, "ids": tokenizer(text, add_special_tokens=False).input_ids}
                for text in TEXTS
            ],
        }
    target.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
