"""Write the vector files beside this package."""

import json
from pathlib import Path

from spec.vectors.make import (
    admission,
    archive,
    bundles,
    call_keys,
    calls,
    comparison,
    digests,
    document,
    documents,
    drafts,
    draw,
    grammar,
    headers,
    invitations,
    level1,
    lineage,
    manifest,
    order,
    pieces,
    profile,
    proofs,
    receipt,
    render,
    salts,
    sampler,
    signatures,
    texts,
    visibility,
    wire,
)

FOLDER = Path(__file__).parent.parent

FILES = {
    "entry.json": headers.build,
    "wire.json": wire.build,
    "signature.json": signatures.build,
    "admission.json": admission.build,
    "visibility.json": visibility.build,
    "order.json": order.build,
    "digest.json": digests.build,
    "drafts.json": drafts.build,
    "level1.json": level1.build,
    "bundle.json": bundles.build,
    "salt.json": salts.build,
    "proof.json": proofs.build,
    "comparison.json": comparison.build,
    "document-rules.json": documents.build,
    "render.json": render.build,
    "pieces.json": pieces.build,
    "sampler.json": sampler.build,
    "invitation.json": invitations.build,
    "call-key.json": call_keys.build,
    "calls.json": calls.build,
    "text.json": texts.build,
    "draw.json": draw.build,
    "grammar.json": grammar.build,
    "profile.json": profile.build,
    "receipt.json": receipt.build,
    "lineage.json": lineage.build,
    "manifest.json": manifest.build,
    "archive.json": archive.build,
}
"""The files of the form of schema.json."""
ALL = {**FILES, "document.json": document.build}


def text(name: str) -> str:
    """Return the content of one file."""
    return json.dumps(ALL[name](), indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    """Write all files."""
    for name in ALL:
        (FOLDER / name).write_text(text(name))
        print(name)


if __name__ == "__main__":
    main()
