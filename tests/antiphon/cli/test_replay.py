"""`antiphon replay` without a host; tests/model_host/io/test_replay_command.py has one."""

from dataclasses import replace
from pathlib import Path

import pytest

from replica.conversation import NO_ENTRY, NO_TOKEN, Cause, Outcome, Receipt, sign_receipt
from replica.io import encode_receipt
from tests.antiphon.cli.conftest import Terminal
from tests.replica.conversation.test_receipt import HOST, RECEIPT

ACCEPTED = replace(
    RECEIPT, outcome=Outcome.ACCEPTED, differing=0, first=NO_ENTRY, first_cause=Cause.NONE,
    first_token=NO_TOKEN,
)  # fmt: skip
OF = RECEIPT.conversation.hex()


def saved(folder: Path, receipt: Receipt) -> str:
    """Sign a receipt and save it; return the path."""
    path = folder / "receipt"
    path.write_bytes(encode_receipt(sign_receipt(receipt, HOST.key)))
    return str(path)


def test_a_receipt_that_can_not_be_saved_is_refused_before_a_host_is_asked(
    me: Terminal, tmp_path: Path
) -> None:
    me.ok("new")
    (tmp_path / "file").write_text("before")
    assert me.refused("replay", "--receipt", str(tmp_path / "absent" / "r")) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path / "file" / "r")) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path / ("r" * 300))) == "FILE_UNUSABLE"
    assert me.refused("replay", "--receipt", str(tmp_path), "--force") == "ARGUMENT_INVALID"
    existing = me.run("replay", "--receipt", str(tmp_path / "file"))
    assert (existing.exit_code, "give `--force`" in existing.stderr) == (1, True)
    assert "NO_HOST" not in existing.stderr
    # What is to be replaced is, at the end alone.
    assert me.refused("replay", "--receipt", str(tmp_path / "file"), "--force") == "NO_HOST"
    assert (tmp_path / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir() if "file" in path.name] == ["file"]


def test_a_saved_receipt_of_accepted_answers_is_in_order(me: Terminal, tmp_path: Path) -> None:
    path = saved(tmp_path, ACCEPTED)
    assert "3 accepted" in me.ok("replay", "--check", path)
    assert "3 accepted" in me.ok("replay", OF[:8], "--check", path, "--host", HOST.public.hex())


@pytest.mark.parametrize(
    ("time_ms", "words"),
    [
        (0, "on 1970-01-01T00:00:00"),
        (253_402_300_799_999, "on 9999-12-31T23:59:59"),
        (253_402_300_800_000, "on a date behind the year 9999"),
        (2**64 - 1, "on a date behind the year 9999"),
    ],
)
def test_a_receipt_of_any_time_is_shown(
    time_ms: int, words: str, me: Terminal, tmp_path: Path
) -> None:
    path = saved(tmp_path, replace(ACCEPTED, time_ms=time_ms))
    assert words in me.ok("replay", "--check", path)


@pytest.mark.parametrize(
    ("outcome", "counts", "words"),
    [
        (Outcome.DIFFERS, {"differing": 1}, "1 answer differs"),
        (Outcome.UNDECIDED, {"undecided": 2}, "2 answers are undecided"),
        (Outcome.UNDECIDED, {}, "0 answers are undecided"),
        (Outcome.DIFFERS, {}, "0 answers differ"),
    ],
)
def test_a_saved_receipt_that_does_not_accept_all_answers_fails_the_command(
    outcome: Outcome, counts: dict[str, int], words: str, me: Terminal, tmp_path: Path
) -> None:
    first = {"first": RECEIPT.first, "first_cause": Cause.TOKEN, "first_token": 4}
    path = saved(tmp_path, replace(ACCEPTED, outcome=outcome, **counts, **first))
    result = me.run("replay", "--check", path)
    assert result.exit_code == 1
    assert words in result.stderr
    assert "CHECKS_FAILED" in result.stderr
    assert f"first: answer {RECEIPT.first.hex()[:12]}" in result.stdout
    assert "token at output token 4" in result.stdout


@pytest.mark.parametrize("other", ["ab" * 32, "ab", "", "none", OF + "00"])
def test_a_saved_receipt_of_another_conversation_is_refused(
    other: str, me: Terminal, tmp_path: Path
) -> None:
    path = saved(tmp_path, ACCEPTED)
    assert me.refused("replay", other, "--check", path) == "RECEIPT_INVALID"


@pytest.mark.parametrize(
    "more", [("--rebuild",), ("--from", "ab"), ("--receipt", "file"), ("--force",)]
)
def test_a_saved_receipt_is_checked_without_the_options_of_a_replay(
    more: tuple[str, ...], me: Terminal, tmp_path: Path
) -> None:
    path = saved(tmp_path, ACCEPTED)
    assert me.refused("replay", "--check", path, *more, code=2) == "USAGE_INVALID"
