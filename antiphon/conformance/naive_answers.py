"""What the naive folds say of a log, in the form of the answers of a core. Pure."""

from collections.abc import Iterable
from typing import Any

from antiphon.conformance.naive_members import naive_covered, naive_membership
from antiphon.conformance.naive_order import NaiveOrder, naive_order
from antiphon.conformance.naive_sealable import naive_sealable
from antiphon.conformance.naive_tail import CoveredLog, naive_frontier, naive_tail
from replica.ids import EntryId
from replica.log import Kind, Log, Seal, digest_of


def _sorted(ids: Iterable[bytes]) -> list[str]:
    return sorted(i.hex() for i in ids)


def expected_fold(log: Log) -> dict[str, object]:
    """Return the answer to `fold`."""
    members, covered = naive_membership(log), naive_covered(log)
    followed = {log.entries[i].header.prev for i in covered}
    heads = sorted(log.entries[i].position for i in covered - followed)
    return {
        "visible": _sorted(e.id for e in log.entries.values() if members.sees(e)),
        "members": {
            key.hex(): sorted(role.name for role in roles)
            for key, roles in members.roles.items()
            if roles and key not in members.kept
        },
        "covered": _sorted(covered),
        "digest": digest_of(heads).hex(),
        "pending": _sorted(log.pending),
    }


def expected_order(log: Log) -> dict[str, Any]:
    """Return the answer to `order` about all seals, requests and tips."""
    order, covered = naive_order(log), naive_covered(log)
    seals: dict[str, object] = {}
    for entry in log.entries.values():
        if entry.header.kind != Kind.SEAL:
            continue
        chain = order.chains.get(entry.id)
        if chain is None:
            verdict = "void" if entry.id in covered else "uncovered"
            seals[entry.id.hex()] = {"verdict": verdict}
            continue
        bodies = [body for i in chain if isinstance(body := log.body(i), Seal)]
        seals[entry.id.hex()] = {
            "verdict": "counts",
            "prev_seal": chain[-2].hex() if len(chain) > 1 else None,
            "context": [i.hex() for body in bodies for i in body.entries],
            "context_digest": bodies[-1].context_digest.hex(),
        }
    requests = [e for e in log.entries.values() if e.header.kind == Kind.REQUEST]
    answers = {e.id: order.answers.get(e.id) for e in requests if e.id in covered}
    return {
        "seals": seals,
        "answers": {i.hex(): a.hex() if a else None for i, a in answers.items()},
        "sealable": _expected_sealable(log, order, covered),
        "tails": _expected_tails(log, order, covered),
    }


def _expected_sealable(log: Log, order: NaiveOrder, covered: set[EntryId]) -> dict[str, object]:
    state = naive_membership(log)
    found: dict[str, object] = {}
    for entry in (log.entries[i] for i in covered):
        if entry.header.kind == Kind.REQUEST:
            seal = naive_sealable(log, order, state, covered, entry)
            found[entry.id.hex()] = seal and {
                "prev_seal": seal[0].hex() if seal[0] else None,
                "entries": [i.hex() for i in seal[1]],
            }
    return found


def _expected_tails(log: Log, order: NaiveOrder, covered: set[EntryId]) -> list[object]:
    held, state = CoveredLog(log, covered), naive_membership(log)
    parents = {seal for chain in order.chains.values() for seal in chain[:-1]}
    return [
        {
            "tip": tip.hex() if tip else None,
            "entries": [i.hex() for i in naive_tail(held, order, state, tip)],
            "frontier": [i.hex() for i in naive_frontier(held, order, state, tip)],
        }
        for tip in (None, *sorted(order.chains.keys() - parents))
    ]
