"""The naive answers have the form of those of a core."""

from antiphon.conformance.answers import answer
from antiphon.conformance.io.random_logs import RandomLog
from antiphon.conformance.naive_answers import expected_fold, expected_order


def test_what_the_naive_folds_say_of_a_new_log_is_what_the_core_says() -> None:
    log = RandomLog(1).log
    entries = [
        {
            "header": e.header_bytes.hex(),
            "signature": e.signature.hex(),
            "body": (e.body or b"").hex(),
        }
        for e in log.entries.values()
    ]
    given = {"conversation": next(iter(log.entries)).hex(), "entries": entries}
    found = answer({"ask": "fold", **given})
    expected = expected_fold(log)
    assert {name: found[name] for name in expected} == expected
    order = expected_order(log)
    assert order["seals"] == order["answers"] == order["sealable"] == {}
    assert [one["tip"] for one in order["tails"]] == [None]
