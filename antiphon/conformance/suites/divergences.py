"""The divergences of the suite: how each begins, is detected, and ends. Pure.

A step states the entries a replica holds before it and afterwards, so that a player
keeps no state. `python -m antiphon.conformance.suites` writes the files.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from antiphon.conformance.suites.recording import Json, Recorder
from replica.conversation import Draft, extend_digest, sealable, sign_draft, start_digest
from replica.ids import Digest, EntryId
from replica.log import (
    Conflict,
    Cut,
    FinishReason,
    Generation,
    Member,
    Request,
    Revocation,
    Role,
    Sampling,
    Seal,
    Text,
)
from replica.order import context_digest

DIFFERENT = "DIFFERENT"
"""The hub's digest is another one."""
NOT_FOUND = "CONVERSATION_NOT_FOUND"
PROFILE = Digest(bytes(32))
_RUN = 7
_TOKENS = (3, 1, 4)

_Build = Callable[[Recorder], None]
_DIVERGENCES: list[tuple[str, tuple[str, ...], _Build]] = []


def _divergence(*requirements: str) -> Callable[[_Build], _Build]:
    def register(build: _Build) -> _Build:
        name = build.__name__.strip("_").replace("_", "-")
        _DIVERGENCES.append((name, requirements, build))
        return build

    return register


def divergences(seed: int = 0) -> Iterator[Json]:
    """Yield the content of each file; another seed gives other keys and ids."""
    for name, requirements, build in _DIVERGENCES:
        recorder = Recorder(seed, name)
        build(recorder)
        title = (build.__doc__ or "").strip().split("\n")[0]
        yield recorder.content(title, requirements)


def _diverged(label: str) -> str:
    return f"LANES_DIVERGED {label}"


def _sync(
    r: Recorder,
    key: str,
    holds: Sequence[str],
    then: Sequence[str],
    *detects: str,
    replica: str = "",
) -> list[str]:
    """Add a step: a replica connects with some entries, and holds others afterwards."""
    r.steps.append(
        {
            "do": "sync",
            "replica": replica or key,
            "key": key,
            "holds": list(holds),
            "detects": sorted(detects),
            "then": list(then),
            "digest": r.digest(then).hex(),
        }
    )
    return list(then)


def _denied(r: Recorder, key: str, holds: Sequence[str]) -> None:
    """Add a step: a key that is no member gets the answer for an unknown conversation."""
    r.steps.append({"do": "denied", "key": key, "holds": list(holds), "detects": [NOT_FOUND]})


def _resolve(r: Recorder, key: str, request: str, seal: str | None, answer: str | None) -> None:
    """Add a step: the hub names the counting seal of a request, and the answer."""
    r.steps.append(
        {"do": "resolve", "key": key, "request": request, "seal": seal, "generation": answer}
    )


def _ask(r: Recorder, label: str, key: str, held: Sequence[str], behind: str, **more: str) -> str:
    body = Request(r.public("hal"), Sampling())
    return r.write(label, key, body, held, [behind], **more)  # type: ignore[arg-type]


def write_seal(r: Recorder, label: str, held: Sequence[str], request: str) -> str:
    """Let the host write the right seal of a request; return its label."""
    found = sealable(r.held(held), r.entries[request].id)
    assert found is not None, "its turn has come"
    counts = (1,) * len(found.entries)
    body = Seal(
        found.request,
        found.parent.id if found.parent is not None else None,
        found.entries,
        PROFILE,
        found.context_digest,
        PROFILE,
        counts,
        found.membership_heads,
    )
    return r.write(label, "hal", body, held, [request])


def write_answer(r: Recorder, label: str, held: Sequence[str], seal: str) -> str:
    """Let the host answer "Yes." to a seal; return its label."""
    body = Generation((1, 2), (Text("Yes."),), 4, FinishReason.STOP)
    return r.write(label, "hal", body, held, [seal], basis=seal)


def _cut(r: Recorder, label: str) -> Cut:
    header = r.entries[label].header
    return Cut(header.epoch, header.track, header.seq, r.entries[label].id)


# --- lanes -------------------------------------------------------------------------------


@_divergence("REC-3", "REC-4", "LINK-12")
def lane_fork(r: Recorder) -> None:
    """Fork a lane: one key writes the same position on two devices."""
    base = r.begin(bob=Role.WRITER)
    phone = [*base, r.say("phone-0", "ada", base, "genesis")]
    laptop = [*base, r.say("laptop-0", "ada", base, "genesis")]
    both = [*phone, "laptop-0"]
    _sync(r, "ada", phone, phone, NOT_FOUND, replica="phone")
    _sync(r, "ada", laptop, both, DIFFERENT, _diverged("laptop-0"), replica="laptop")
    _sync(r, "ada", phone, both, DIFFERENT, replica="phone")
    _sync(r, "bob", base, both, DIFFERENT)
    _sync(r, "bob", both, both)


@_divergence("REC-3", "REC-4")
def longer_fork(r: Recorder) -> None:
    """Fork a lane that is longer at the replica than at the hub."""
    base = r.begin(bob=Role.WRITER)
    phone = [*base, r.say("phone-0", "ada", base, "genesis")]
    laptop = [*base, r.say("laptop-0", "ada", base, "genesis")]
    laptop.append(r.say("laptop-1", "ada", laptop, "laptop-0"))
    laptop.append(r.say("laptop-2", "ada", laptop, "laptop-1"))
    both = [*laptop, "phone-0"]
    _sync(r, "ada", phone, phone, NOT_FOUND, replica="phone")
    _sync(r, "ada", laptop, both, DIFFERENT, replica="laptop")
    _sync(r, "ada", phone, both, DIFFERENT, replica="phone")


@_divergence("REC-3", "ENT-14", "PROM-4")
def restored_replica(r: Recorder) -> None:
    """Restore a replica from a backup: it writes a second history, and goes on in a new epoch."""
    base = r.begin(bob=Role.WRITER)
    first = [*base, r.say("one", "ada", base, "genesis")]
    lost = [*first, r.say("lost", "ada", first, "one")]
    again = [*first, r.say("again", "ada", first, "one")]
    both = [*lost, "again"]
    _sync(r, "ada", lost, lost, NOT_FOUND)
    _sync(r, "ada", again, both, DIFFERENT, _diverged("again"))
    on = [*both, r.say("new-epoch", "ada", both, "lost", epoch=2)]
    _sync(r, "ada", on, on, DIFFERENT)
    _sync(r, "bob", first, on, DIFFERENT)


@_divergence("REC-3", "ORD-13")
def equivocation(r: Recorder) -> None:
    """Show each of two members another entry of one position, then revoke the writer."""
    base = r.begin(bob=Role.WRITER, eve=Role.WRITER)
    to_ada = [*base, r.say("to-ada", "eve", base, "genesis")]
    to_bob = [*base, r.say("to-bob", "eve", base, "genesis")]
    to_bob.append(r.say("bobs-reply", "bob", to_bob, "to-bob"))
    both = [*to_ada, "to-bob", "bobs-reply"]
    _sync(r, "ada", to_ada, to_ada, NOT_FOUND)
    _sync(r, "bob", to_bob, both, DIFFERENT, _diverged("to-bob"))
    _sync(r, "ada", to_ada, both, DIFFERENT)
    change = Member(Revocation(r.public("eve"), (_cut(r, "to-ada"),)))
    revoked = [*both, r.write("revoke-eve", "ada", change, both, ["grant-eve"])]
    _sync(r, "ada", revoked, revoked, DIFFERENT)
    _sync(r, "bob", both, revoked, DIFFERENT)
    _denied(r, "eve", to_ada)


# --- losses ------------------------------------------------------------------------------


@_divergence("REC-1", "REC-2", "LINK-12")
def restored_hub(r: Recorder) -> None:
    """Restore a hub from a backup: it lacks entries that it had acked."""
    base = r.begin(bob=Role.WRITER)
    kept = [*base, r.say("one", "ada", base, "genesis")]
    acked = [*kept, r.say("two", "ada", kept, "one")]
    acked.append(r.say("three", "ada", acked, "two"))
    bobs = [*kept, r.say("bob-one", "bob", kept, "one")]
    _sync(r, "bob", kept, kept, NOT_FOUND)
    _sync(r, "bob", bobs, bobs, DIFFERENT)
    final = [*acked, "bob-one"]
    _sync(r, "ada", acked, final, DIFFERENT)
    _sync(r, "bob", bobs, final, DIFFERENT)


@_divergence("LINK-9", "LINK-10", "PROM-1")
def lost_hub(r: Recorder) -> None:
    """Lose a hub's store: the replicas that hold the conversation bring it back."""
    base = r.begin(bob=Role.WRITER)
    adas = [*base, r.say("one", "ada", base, "genesis")]
    bobs = [*adas, r.say("bob-one", "bob", adas, "one")]
    _denied(r, "bob", [])
    _sync(r, "bob", bobs, bobs, NOT_FOUND)
    _sync(r, "ada", adas, bobs, DIFFERENT)
    _sync(r, "ada", bobs, bobs)


@_divergence("REC-1", "LINK-11")
def one_sided_update(r: Recorder) -> None:
    """Write on one side alone: first at the replica, then at another one."""
    base = r.begin(bob=Role.WRITER)
    _sync(r, "ada", base, base, NOT_FOUND)
    written = [*base, r.say("one", "ada", base, "genesis")]
    written.append(r.say("two", "ada", written, "one"))
    _sync(r, "ada", written, written, DIFFERENT)
    _sync(r, "bob", base, written, DIFFERENT)
    _sync(r, "bob", written, written)


# --- partitions --------------------------------------------------------------------------


@_divergence("REC-1", "PROM-1", "ORD-7")
def partition(r: Recorder) -> None:
    """Part two members, who write and ask behind one answer: two branches."""
    base = r.begin(bob=Role.WRITER, hal=Role.HOST)
    asked = [*base, r.say("hello", "ada", base, "genesis")]
    asked.append(_ask(r, "first", "ada", asked, "hello"))
    sealed = [*asked, write_seal(r, "first-seal", asked, "first")]
    sealed.append(write_answer(r, "first-answer", sealed, "first-seal"))
    adas = [*sealed, r.say("adas-word", "ada", sealed, "first-answer")]
    adas.append(_ask(r, "adas-request", "ada", adas, "adas-word", basis="first-seal"))
    bobs = [*sealed, r.say("bobs-word", "bob", sealed, "first-answer")]
    asking = Request(r.public("hal"), Sampling())
    at, fork = "first-seal", Conflict.FORK
    bobs.append(
        r.write("bobs-request", "bob", asking, bobs, ["bobs-word"], basis=at, conflict=fork)
    )
    bobs.append(write_seal(r, "bobs-seal", bobs, "bobs-request"))
    bobs.append(write_answer(r, "bobs-answer", bobs, "bobs-seal"))
    final = [*adas, *(one for one in bobs if one not in adas)]
    _sync(r, "ada", sealed, sealed, NOT_FOUND)
    _sync(r, "bob", bobs, bobs, DIFFERENT)
    _sync(r, "ada", adas, final, DIFFERENT)
    _sync(r, "bob", bobs, final, DIFFERENT)
    _resolve(r, "bob", "first", "first-seal", "first-answer")
    _resolve(r, "ada", "bobs-request", "bobs-seal", "bobs-answer")
    _resolve(r, "ada", "adas-request", None, None)


@_divergence("ORD-4", "ORD-13", "LINK-16")
def partition_with_a_revocation(r: Recorder) -> None:
    """Revoke a member that writes on while it is away: nothing behind its cut counts."""
    base = r.begin(bob=Role.WRITER, eve=Role.WRITER)
    kept = [*base, r.say("eves-first", "eve", base, "genesis")]
    _sync(r, "eve", kept, kept, NOT_FOUND)
    away = [*kept, r.say("eves-second", "eve", kept, "eves-first")]
    change = Member(Revocation(r.public("eve"), (_cut(r, "eves-first"),)))
    revoked = [*kept, r.write("revoke-eve", "ada", change, kept, ["grant-eve"])]
    _sync(r, "ada", revoked, revoked, DIFFERENT)
    _denied(r, "eve", away)
    # Bob got her entry from herself, and does not know yet that she is revoked.
    _sync(r, "bob", away, [*revoked, "eves-second"], DIFFERENT, "ROLE_FORBIDS eves-second")
    held = [*revoked, r.say("bobs-word", "bob", revoked, "eves-first")]
    _sync(r, "bob", held, held, DIFFERENT)
    _sync(r, "ada", revoked, held, DIFFERENT)


# --- hosts that lie ----------------------------------------------------------------------


@_divergence("ORD-6", "ORD-7", "ORD-9", "ORD-10")
def lying_seals(r: Recorder) -> None:
    """Lie in seals and answers: the first right seal counts, and the first answer to it."""
    base = r.begin(bob=Role.WRITER, hal=Role.HOST)
    asked = [*base, r.say("hello", "ada", base, "genesis")]
    asked.append(r.say("more", "bob", asked, "hello"))
    asked.append(_ask(r, "request", "ada", asked, "more"))
    found = sealable(r.held(asked), r.entries["request"].id)
    assert found is not None, "its turn has come"
    whole = Seal(
        found.request, None, found.entries, PROFILE, found.context_digest, PROFILE,
        (1,) * len(found.entries), found.membership_heads,
    )  # fmt: skip
    hello, more = found.entries[0], found.entries[1]
    lies = {
        "leaves-out": _listing(r, whole, asked, (more, found.request)),
        "wrong-order": _listing(r, whole, asked, (more, hello, found.request)),
        "wrong-digest": replace(whole, context_digest=Digest(bytes(32))),
    }
    lied = list(asked)
    for label, body in lies.items():
        lied.append(r.write(label, "hal", body, lied, ["request"]))
    lied.append(write_answer(r, "void-answer", lied, "leaves-out"))
    _sync(r, "ada", lied, lied, NOT_FOUND)
    _resolve(r, "ada", "request", None, None)
    sealed = [*lied, write_seal(r, "right-seal", lied, "request")]
    sealed.append(r.write("second-seal", "hal", whole, sealed, ["request"]))
    sealed.append(write_answer(r, "answer", sealed, "right-seal"))
    sealed.append(write_answer(r, "second-answer", sealed, "right-seal"))
    sealed.append(write_answer(r, "other-answer", sealed, "second-seal"))
    _sync(r, "ada", sealed, sealed, DIFFERENT)
    _resolve(r, "ada", "request", "right-seal", "answer")
    _sync(r, "bob", asked, sealed, DIFFERENT)


def _listing(r: Recorder, seal: Seal, held: Sequence[str], listed: tuple[EntryId, ...]) -> Seal:
    """Return a seal that lists other entries, with their context digest."""
    digest = context_digest(r.held(held).log, None, listed)
    return replace(seal, entries=listed, context_digest=digest, tokens_per_entry=(1,) * len(listed))


@_divergence("LINK-17", "LINK-18")
def lying_drafts(r: Recorder) -> None:
    """Lie in drafts: out of order, with a wrong digest, or of another request."""
    base = r.begin(bob=Role.WRITER, hal=Role.HOST)
    asked = [*base, r.say("hello", "ada", base, "genesis")]
    asked.append(_ask(r, "request", "ada", asked, "hello"))
    asked.append(_ask(r, "unsealed", "ada", asked, "hello"))
    sealed = [*asked, write_seal(r, "seal", asked, "request")]
    _sync(r, "ada", sealed, sealed, NOT_FOUND)
    request = r.entries["request"].id
    honest = list(draft_frames(r, request))
    other = next(draft_frames(r, r.entries["unsealed"].id))
    forged = replace(honest[0], signature=r.key("bob").sign(b"no draft"))
    wrong = sign_draft(replace(honest[1], digest=Digest(bytes(32))), r.key("hal"))
    shown = [
        (forged, False), (other, False), (honest[0], True), (honest[0], False),
        (honest[2], False), (wrong, False), (honest[1], True), (honest[2], True),
    ]  # fmt: skip
    r.steps.append(
        {
            "do": "drafts",
            "host": "hal",
            "reader": "bob",
            "holds": sealed,
            "frames": [{**_draft(frame), "shown": passes} for frame, passes in shown],
        }
    )


def draft_frames(
    r: Recorder, request: EntryId, run: int = _RUN, shown: bytes = b"x"
) -> Iterator[Draft]:
    """Yield the signed drafts of three tokens, each of which shows one byte."""
    digest, conversation = start_digest(request, run), r.conversation
    for offset, token in enumerate(_TOKENS):
        digest = extend_digest(digest, (token,))
        frame = Draft(conversation, request, run, offset, (token,), offset, shown, digest)
        yield sign_draft(frame, r.key("hal"))


def _draft(frame: Draft) -> Json:
    return {
        "request": frame.request.hex(),
        "run": frame.run,
        "token_offset": frame.token_offset,
        "token_ids": list(frame.token_ids),
        "byte_offset": frame.byte_offset,
        "data": frame.data.hex(),
        "digest": frame.digest.hex(),
        "signature": frame.signature.hex(),
    }
