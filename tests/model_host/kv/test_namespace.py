"""A namespace changes with everything a page depends on, and with nothing else."""

from dataclasses import fields, replace

from model_host.engine.torch_engine import TorchEngine
from model_host.kv.namespace import Namespace, canonical_json

BASE = Namespace(
    weights_sha256=b"w" * 32,
    dequantisation=b"d" * 32,
    config="{}",
    numerics="bf16",
    kv_dtype="bf16",
    page_layout="pages",
    shapes="{}",
    numerics_class=b"n" * 32,
    salt=b"salt",
)


def test_every_field_changes_the_digest() -> None:
    digests = {BASE.digest}
    for field in fields(Namespace):
        value = getattr(BASE, field.name)
        digests.add(replace(BASE, **{field.name: value + value[:1]}).digest)
    assert len(digests) == 1 + len(fields(Namespace))


def test_fields_do_not_run_into_each_other() -> None:
    moved = replace(BASE, numerics="bf1", kv_dtype="6bf16")
    assert moved.digest != BASE.digest


def test_the_digest_is_fixed() -> None:
    assert BASE.digest.hex().startswith("5e2174971059a2f9")


def test_canonical_json_is_exact_and_sorted() -> None:
    assert canonical_json({"b": [1, 0.1], "a": None}) == (
        '{"a":null,"b":[1,"0x1.999999999999ap-4"]}'
    )


def test_owners_do_not_share_pages(tiny: TorchEngine) -> None:
    a, b = tiny.namespace(b"a"), tiny.namespace(b"b")
    assert a.digest != b.digest
    assert replace(a, salt=b"b") == b
    assert a.numerics_class == tiny.numerics_class
