"""Profiles: model, tokenizer, template and limits under one digest (spec/07-host §1)."""

from dataclasses import dataclass, fields

from replica.ids import Digest, tagged_sha256
from replica.link import ProfileInfo


@dataclass(frozen=True, slots=True)
class Profile:
    """One model, as this host runs it."""

    name: str
    weights_digest: Digest
    tokenizer_digest: Digest
    template_digest: Digest
    render_recipe_digest: Digest
    sampler_digest: Digest
    numerics: str
    context_tokens_max: int
    has_tools: bool
    grammar_engine: str

    @property
    def digest(self) -> Digest:
        """The hash of every field with its length; equal profiles have equal digests."""
        parts = []
        for item in fields(self):
            data = _encoded(getattr(self, item.name))
            parts.append(len(data).to_bytes(4, "little") + data)
        return tagged_sha256(b"antiphon/v1/profile", b"".join(parts))

    @property
    def info(self) -> ProfileInfo:
        """The description for hubs and clients."""
        return ProfileInfo(self.digest, self.name, self.context_tokens_max, numerics=self.numerics)


def _encoded(value: bytes | str | int) -> bytes:
    match value:
        case bytes():
            return value
        case bool():
            return bytes([value])
        case int():
            return value.to_bytes(4, "little")
        case str():
            return value.encode()
