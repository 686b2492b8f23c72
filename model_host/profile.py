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

    @property
    def digest(self) -> Digest:
        """The hash of every field with its length; equal profiles have equal digests."""
        parts = []
        for item in fields(self):
            value = getattr(self, item.name)
            data = value if isinstance(value, bytes) else str(value).encode()
            parts.append(len(data).to_bytes(4, "little") + data)
        return tagged_sha256(b"antiphon/v1/profile", b"".join(parts))

    @property
    def info(self) -> ProfileInfo:
        """The description for hubs and clients."""
        return ProfileInfo(self.digest, self.name, self.context_tokens_max)
