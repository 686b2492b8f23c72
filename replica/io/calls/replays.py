"""Findings and receipts of replays as messages, and receipts as files (spec/07-host §10)."""

from dataclasses import dataclass
from typing import cast

from antiphon.v1 import host_pb2 as pb
from replica.conversation import NO_TOKEN, Finding, Judge, Receipt, ReceiptInvalid, ReplayMode
from replica.errors import with_step
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.log import parse

_SAME_NAMES = (
    "host", "conversation", "log_digest", "entries", "from_entry", "accepted", "differing",
    "undecided", "refused", "open", "tokens", "first", "profile", "numerics_class",
    "findings_digest", "signature",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is, in tokens."""

    done: int
    total: int


ReplayEvent = ReplayProgress | Finding | Receipt

FINDINGS_BYTES_MAX = 128 * 1024 * 1024
"""Bytes of the findings that a client keeps for the receipt: log probabilities of all tokens that
a host may replay have 32 MiB."""


class Findings:
    """The findings of a replay, against which its receipt is checked."""

    def __init__(self) -> None:
        """Start empty."""
        self.all: list[Finding] = []
        self._bytes = 0

    def add(self, finding: Finding, nbytes: int) -> None:
        """Keep a finding that came in so many bytes. Raises ReceiptInvalid (DECISIONS D633)."""
        self._bytes += nbytes
        if self._bytes > FINDINGS_BYTES_MAX:
            most = f"the host's findings have more than {FINDINGS_BYTES_MAX:,} bytes"
            raise with_step(ReceiptInvalid(most), "Replay with `--host KEY` at another host.")
        self.all.append(finding)


def replay_request(
    conversation: ConversationId, mode: ReplayMode, from_entry: EntryId | None
) -> pb.ReplayRequest:
    """Return the request for a replay."""
    return pb.ReplayRequest(
        conversation=conversation,
        mode=cast("pb.ReplayMode.ValueType", mode.value),
        from_entry=from_entry or b"",
    )


def event_from_pb(raw: pb.ReplayResponse) -> ReplayEvent | None:
    """Return the event of a response; None for one that this version does not know."""
    match raw.WhichOneof("event"):
        case "progress":
            return ReplayProgress(raw.progress.done_tokens, raw.progress.total_tokens)
        case "finding":
            return _finding_from_pb(raw.finding)
        case "receipt":
            return _receipt_from_pb(raw.receipt)
        case _:
            return None


def event_to_pb(event: ReplayEvent) -> pb.ReplayResponse:
    """Return the response that carries an event."""
    match event:
        case ReplayProgress(done, total):
            progress = pb.ReplayProgress(done_tokens=done, total_tokens=total)
            return pb.ReplayResponse(progress=progress)
        case Finding():
            return pb.ReplayResponse(finding=_finding_to_pb(event))
        case Receipt():
            return pb.ReplayResponse(receipt=_receipt_to_pb(event))


def encode_receipt(receipt: Receipt) -> bytes:
    """Return a receipt as the content of a file: a serialised Receipt message."""
    return _receipt_to_pb(receipt).SerializeToString(deterministic=True)


def decode_receipt(data: bytes) -> Receipt:
    """Read the content of a file; the caller checks the signature. Raises ReceiptInvalid."""
    return _receipt_from_pb(parse(pb.Receipt, data, ReceiptInvalid))


def _finding_to_pb(finding: Finding) -> pb.ReplayFinding:
    raw = pb.ReplayFinding(
        answer=finding.answer,
        seal=finding.seal,
        render_digest=finding.render_digest,
        outcome=cast("pb.ReplayOutcome.ValueType", finding.outcome),
        cause=cast("pb.ReplayCause.ValueType", finding.cause),
        entry=finding.entry,
        detail=finding.detail,
        prompt_tokens=finding.prompt_tokens,
        output_tokens=finding.output_tokens,
        checked_tokens=finding.checked_tokens,
        differing_tokens=finding.differing_tokens,
        logprobs=finding.logprobs,
        cached_tokens=finding.cached_tokens,
    )
    if finding.token_index != NO_TOKEN:
        raw.token_index = finding.token_index
    return raw


def _finding_from_pb(raw: pb.ReplayFinding) -> Finding:
    return Finding(
        answer=EntryId(raw.answer),
        seal=EntryId(raw.seal),
        render_digest=Digest(raw.render_digest),
        outcome=raw.outcome,
        cause=raw.cause,
        token_index=raw.token_index if raw.HasField("token_index") else NO_TOKEN,
        entry=EntryId(raw.entry),
        detail=raw.detail,
        prompt_tokens=raw.prompt_tokens,
        output_tokens=raw.output_tokens,
        checked_tokens=raw.checked_tokens,
        differing_tokens=raw.differing_tokens,
        logprobs=tuple(raw.logprobs),
        cached_tokens=raw.cached_tokens,
    )


def _receipt_to_pb(receipt: Receipt) -> pb.Receipt:
    raw = pb.Receipt(
        mode=cast("pb.ReplayMode.ValueType", receipt.mode),
        outcome=cast("pb.ReplayOutcome.ValueType", receipt.outcome),
        first_cause=cast("pb.ReplayCause.ValueType", receipt.first_cause),
        create_time_ms=receipt.time_ms,
        further=[
            pb.ReplayJudge(profile=judge.profile, numerics_class=judge.numerics_class)
            for judge in receipt.further
        ],
        **{name: getattr(receipt, name) for name in _SAME_NAMES},
    )
    if receipt.first_token != NO_TOKEN:
        raw.first_token = receipt.first_token
    return raw


def _receipt_from_pb(raw: pb.Receipt) -> Receipt:
    return Receipt(
        host=PublicKey(raw.host),
        conversation=ConversationId(raw.conversation),
        log_digest=Digest(raw.log_digest),
        entries=raw.entries,
        mode=raw.mode,
        outcome=raw.outcome,
        accepted=raw.accepted,
        differing=raw.differing,
        undecided=raw.undecided,
        tokens=raw.tokens,
        profile=Digest(raw.profile),
        numerics_class=Digest(raw.numerics_class),
        findings_digest=Digest(raw.findings_digest),
        time_ms=raw.create_time_ms,
        refused=raw.refused,
        open=raw.open,
        from_entry=EntryId(raw.from_entry),
        first=EntryId(raw.first),
        first_cause=raw.first_cause,
        first_token=raw.first_token if raw.HasField("first_token") else NO_TOKEN,
        further=tuple(
            Judge(Digest(judge.profile), Digest(judge.numerics_class)) for judge in raw.further
        ),
        signature=raw.signature,
    )
