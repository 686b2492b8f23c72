"""Profiles: equal digests for equal profiles alone."""

from dataclasses import fields, replace

from model_host.profiles.profile import Profile
from replica.ids import Digest, tagged_sha256

PROFILE = Profile(
    name="SmolLM2",
    weights_digest=Digest(b"w" * 32),
    tokenizer_digest=Digest(b"t" * 32),
    template_digest=Digest(b"m" * 32),
    render_recipe_digest=Digest(b"r" * 32),
    sampler_digest=Digest(b"s" * 32),
    numerics="bf16",
    context_tokens_max=8192,
    has_tools=False,
    grammar_engine="engine 1.0",
)


def test_the_digest_covers_every_field_with_its_length() -> None:
    changed = {
        "name": "SmolLM", "numerics": "fp32", "context_tokens_max": 8191, "has_tools": True,
        "grammar_engine": "engine 1.1",
    }  # fmt: skip
    others = [
        replace(PROFILE, **{field.name: changed.get(field.name, Digest(b"x" * 32))})
        for field in fields(Profile)
    ]
    assert len({profile.digest for profile in (PROFILE, *others)}) == len(fields(Profile)) + 1
    # Without lengths these would run together.
    a, b = replace(PROFILE, name="ab", numerics="c"), replace(PROFILE, name="a", numerics="bc")
    assert a.digest != b.digest


def test_the_digest_is_the_one_the_specification_names() -> None:
    values = [PROFILE.name.encode(), *(c * 32 for c in (b"w", b"t", b"m", b"r", b"s"))]
    values += [b"bf16", b"\x00\x20\x00\x00", b"\x00", b"engine 1.0"]
    content = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    assert PROFILE.digest == tagged_sha256(b"antiphon/v1/profile", content)


def test_the_info_for_hubs_and_clients_has_digest_name_and_context() -> None:
    info = PROFILE.info
    assert (info.digest, info.name, info.context_tokens_max) == (PROFILE.digest, "SmolLM2", 8192)
