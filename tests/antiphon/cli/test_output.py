"""Text of others can't control the reader's terminal."""

import json
import math

import pytest

from antiphon.cli.views.output import Output, detail_of, harmless
from replica.refusals import HubUnreachable

HARMFUL = "\x1b[2J\x07\x9b2J\u202etxt.exe\u2066a\u2069\u200f\u061c\u2028"


def test_control_characters_and_direction_overrides_become_visible() -> None:
    shown = harmless(HARMFUL)
    assert len(shown) == len(HARMFUL)
    assert shown.isprintable()
    assert "txt.exe" in shown


def test_text_shown_and_noted_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.show(HARMFUL)
    out.note(HARMFUL)
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert text.rstrip("\n").isprintable()


def test_json_escapes_them_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).emit({"text": HARMFUL, "name": "Ünal 日本"})
    line = capsys.readouterr().out
    assert line.rstrip("\n").isprintable()
    assert json.loads(line) == {"text": HARMFUL, "name": "Ünal 日本"}


@pytest.mark.parametrize("char", "\xad\u200b\u2060\u3164\ufe0f\ufeff\ufff9\U000e0041\U000e0100")
def test_json_shows_what_a_terminal_leaves_out(
    capsys: pytest.CaptureFixture[str], char: str
) -> None:
    Output(as_json=True).emit({"text": f"a{char}b", "name": "Ünal 日本"})
    shown = capsys.readouterr().out
    assert char not in shown
    assert "Ünal 日本" in shown
    assert json.loads(shown)["text"] == f"a{char}b"


def test_json_has_null_for_numbers_that_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """A host may state any, and strict readers refuse a line with NaN in it."""
    sample = {"hit_rate": math.nan, "rates": [(math.inf, 1), -math.inf, 0.5, 2]}
    Output(as_json=True).emit({"metrics": sample})
    line = capsys.readouterr().out
    assert line == '{"metrics":{"hit_rate":null,"rates":[[null,1],null,0.5,2]}}\n'


def test_a_width_of_zero_is_no_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "0")
    out = Output()
    out.show("data")
    out.note("words")
    assert capsys.readouterr() == ("data\n", "words\n")


def test_the_cause_is_named_of_a_connection_that_tls_refused():
    words = "ssl handshake failed: certificate verify failed: certificate is not yet valid: OK"
    shown = detail_of(HubUnreachable(words))
    assert shown == "the hub does not answer: certificate is not yet valid"
