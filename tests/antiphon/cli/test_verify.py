"""`antiphon verify` fails for damage, and notes what the authors did."""

from dataclasses import replace
from pathlib import Path

from replica.log.body import Role
from replica.log.bundle import encode_bundle
from tests.antiphon.cli.conftest import Terminal
from tests.support.sample import Sample
from tests.support.stories import seal_of
from tests.support.writers import Writer, said


def imported(me: Terminal, sample: Sample, file: Path) -> None:
    """Import the log of a sample."""
    file.write_bytes(b"".join(encode_bundle(sample.held.log.entries.values(), ())))
    me.ok("import", str(file))


def test_a_body_that_its_author_kept_back_is_no_damage(me: Terminal, tmp_path: Path) -> None:
    sample = Sample()
    entry = sample.owner.write(sample.id, said("kept back"), parents=[sample.genesis])
    sample.add(replace(entry, body=None))
    imported(me, sample, tmp_path / "talk.bundle")
    found = me.record("verify")
    assert found["ok"]
    assert any("without its body" in words for words in found["noted"])
    repaired = me.run("repair")
    assert (repaired.exit_code, "came without the body" in repaired.stderr) == (0, True)


def test_a_seal_that_breaks_a_rule_is_no_damage(me: Terminal, tmp_path: Path) -> None:
    sample, host = Sample(), Writer(6)
    sample.grant(host, Role.HOST)
    message = sample.owner.write(sample.id, said("asked"), parents=[sample.genesis])
    sample.add(message)
    request = sample.ask(host, message)
    seal = seal_of(sample.held, request.id, (request.id,), None)  # it leaves the message out
    heads = sample.at(*seal.membership_heads)
    sample.add(host.write(sample.id, seal, parents=[request], listed=heads))
    assert sample.held.order.void
    imported(me, sample, tmp_path / "talk.bundle")
    found = me.record("verify")
    assert found["ok"]
    assert any("is void" in words for words in found["noted"])
