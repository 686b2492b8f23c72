"""Receipts of replays: what a host has checked of a conversation, signed (spec/07-host §10).

Pure. A receipt states the log by its digest and the result by counts, and binds the findings
of each answer by a digest over them. Anyone who trusts the host's key can check it later,
without the host and without the log.
"""

import struct
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from replica.errors import EntryRefused, RequestRefused
from replica.ids import ID_BYTES, ConversationId, Digest, EntryId, PublicKey, pae, tagged_sha256
from replica.log import verify

RECEIPT_TAG = b"antiphon/v1/receipt"
FINDINGS_TAG = b"antiphon/v1/findings"
NO_ENTRY = EntryId(b"")
NO_TOKEN = -1
_FIELDS = struct.Struct("<BBBQQQQQQQqQ")
_FINDING = struct.Struct("<32s32sBBqQQQQ")


class ReceiptInvalid(RequestRefused):
    """The receipt is malformed, its host did not sign it, or it is of another replay."""

    reason = "RECEIPT_INVALID"
    next_step = "Ask for the receipt again, or replay the conversation."


class ReplayMode(IntEnum):
    """What a replay does; the numbers are those of the protocol."""

    REBUILD = 1
    """Render and compute all contexts from the log."""
    VERIFY = 2
    """Check every recorded token as well."""


class Outcome(IntEnum):
    """What a replay says of an answer; the numbers are those of the protocol."""

    ACCEPTED = 1
    """All that was checked is what this host computes."""
    DIFFERS = 2
    """The log states something else than this host computes under the very same conditions."""
    UNDECIDED = 3
    """This host can't judge it; the cause says why."""


class Cause(IntEnum):
    """Why an answer is not accepted; the numbers are those of the protocol."""

    NONE = 0
    TOKEN = 1
    """A token is not the one that the request yields: changed, or drawn in another way."""
    LOGPROBS = 2
    ENDING = 3
    """The answer goes on behind its end, ends without a reason, or states another one."""
    TEXT = 4
    """The parts are not those of the tokens."""
    USAGE = 5
    DRAFTS = 6
    """The digest of the draft stream is not that of the tokens."""
    RENDERING = 7
    """The seal states another rendering than its own profile has."""
    REQUEST = 8
    """The rules of the host refuse this request."""
    CACHE = 9
    """Cached keys and values differ from those computed now."""
    OTHER_WEIGHTS = 10
    """Another profile: other weights, or other limits of the same ones."""
    OTHER_NUMERICS = 11
    """Another numerics class."""
    OTHER_TEMPLATE = 12
    """Another profile, whose tokenizer, template or rendering recipe is another."""
    SAMPLING_UNKNOWN = 13
    """The sampling recipe is unknown here, or not stated."""
    PART_MISSING = 14
    """A body is missing here."""
    NOT_BITWISE = 15
    """This host failed its self-test, so its own results vary."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a replay says of one answer."""

    answer: EntryId
    seal: EntryId
    render_digest: Digest
    """Of the context as rendered at the host that replays."""
    outcome: int
    cause: int = Cause.NONE
    token_index: int = NO_TOKEN
    """Output index of the first difference; -1 where it is at no token."""
    entry: EntryId = NO_ENTRY
    """The entry at which the difference begins; empty for the answer itself."""
    detail: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    checked_tokens: int = 0
    """Output tokens compared with those that the request yields."""
    differing_tokens: int = 0
    logprobs: tuple[float, ...] = ()
    """Of each output token, where the host can't judge the tokens."""
    cached_tokens: int = 0
    """Tokens whose cached keys and values were compared with those computed anew."""

    @property
    def _packed(self) -> bytes:
        return _FINDING.pack(
            self.answer, self.render_digest, self.outcome, self.cause, self.token_index,
            self.prompt_tokens, self.output_tokens, self.checked_tokens, self.differing_tokens,
        )  # fmt: skip


def findings_digest(findings: Iterable[Finding]) -> Digest:
    """Return the digest over findings, by ascending id of the answer."""
    ordered = sorted(findings, key=lambda finding: finding.answer)
    return tagged_sha256(FINDINGS_TAG, b"".join(finding._packed for finding in ordered))


@dataclass(frozen=True, slots=True)
class Summary:
    """The fields of a receipt that follow from the findings, whatever their order."""

    outcome: int
    accepted: int
    differing: int
    undecided: int
    tokens: int
    findings_digest: Digest


def summary_of(findings: Collection[Finding]) -> Summary:
    """Return the summary of findings, one for each answer."""
    counts = {outcome: sum(f.outcome == outcome for f in findings) for outcome in Outcome}
    worst = next((o for o in (Outcome.DIFFERS, Outcome.UNDECIDED) if counts[o]), Outcome.ACCEPTED)
    return Summary(
        outcome=worst,
        accepted=counts[Outcome.ACCEPTED],
        differing=counts[Outcome.DIFFERS],
        undecided=counts[Outcome.UNDECIDED],
        tokens=sum(f.checked_tokens for f in findings),
        findings_digest=findings_digest(findings),
    )


@dataclass(frozen=True, slots=True)
class Judge:
    """A profile of the host, by which it judged the answers of that profile."""

    profile: Digest
    numerics_class: Digest


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a host has checked of a conversation; counts are of answers unless said."""

    host: PublicKey
    conversation: ConversationId
    log_digest: Digest
    """Digest of the log that was replayed."""
    entries: int
    """Entries of that log."""
    mode: int
    outcome: int
    """DIFFERS if any answer differs, else UNDECIDED if any is, else ACCEPTED."""
    accepted: int
    differing: int
    undecided: int
    tokens: int
    """Output tokens that were computed and compared."""
    profile: Digest
    """Digest of the host's profile that judged all answers but those of `further`."""
    numerics_class: Digest
    findings_digest: Digest
    """Digest over the findings."""
    time_ms: int
    """Unix time in milliseconds, by the host's clock."""
    refused: int = 0
    """Requests that were refused: nothing was computed for them."""
    open: int = 0
    """Requests that are sealed and not answered yet."""
    from_entry: EntryId = NO_ENTRY
    """Only answers to contexts with this entry were checked; empty for all."""
    first: EntryId = NO_ENTRY
    """The first answer of the log that is not accepted; empty for none."""
    first_cause: int = Cause.NONE
    first_token: int = NO_TOKEN
    """Output index of the first difference within it; -1 where it is at no token."""
    further: tuple[Judge, ...] = ()
    """The other profiles that judged answers, each those of its own, by ascending digest."""
    signature: bytes = b""


def _signed_bytes(receipt: Receipt) -> bytes:
    """Return the pre-image: ids and digests with their lengths, then the numbers."""
    ids = (
        receipt.host,
        receipt.conversation,
        receipt.log_digest,
        receipt.profile,
        receipt.numerics_class,
        receipt.findings_digest,
        receipt.from_entry,
        receipt.first,
        *chain.from_iterable((judge.profile, judge.numerics_class) for judge in receipt.further),
    )
    numbers = _FIELDS.pack(
        receipt.mode,
        receipt.outcome,
        receipt.first_cause,
        receipt.entries,
        receipt.accepted,
        receipt.differing,
        receipt.undecided,
        receipt.tokens,
        receipt.refused,
        receipt.open,
        receipt.first_token,
        receipt.time_ms,
    )
    return pae(RECEIPT_TAG, b"".join(bytes([len(i)]) + i for i in ids) + numbers)


def sign_receipt(receipt: Receipt, key: Ed25519PrivateKey) -> Receipt:
    """Return the receipt with the signature of its host, whose key is `key`."""
    return replace(receipt, signature=key.sign(_signed_bytes(receipt)))


def check_receipt(receipt: Receipt, host: PublicKey | None = None) -> None:
    """Raise ReceiptInvalid unless the receipt's host signed it; `host` is the one expected."""
    whole = (receipt.conversation, receipt.log_digest, receipt.findings_digest)
    judges = (Judge(receipt.profile, receipt.numerics_class), *receipt.further)
    digests = chain.from_iterable((judge.profile, judge.numerics_class) for judge in judges)
    if any(len(one) != ID_BYTES for one in (*whole, *digests)):
        raise ReceiptInvalid("an id or digest has not 32 bytes")
    further = [judge.profile for judge in receipt.further]
    if further != sorted({*further} - {receipt.profile}):
        raise ReceiptInvalid("a profile is repeated, or the profiles do not ascend")
    if any(len(one) not in (0, ID_BYTES) for one in (receipt.from_entry, receipt.first)):
        raise ReceiptInvalid("an entry id has not 32 bytes")
    if host is not None and receipt.host != host:
        raise ReceiptInvalid("it is the receipt of another host")
    try:
        verify(receipt.host, receipt.signature, _signed_bytes(receipt))
    except (EntryRefused, struct.error) as error:
        raise ReceiptInvalid(f"the host's signature does not verify: {error}") from error


def check_findings(receipt: Receipt, findings: Collection[Finding]) -> None:
    """Raise ReceiptInvalid unless the receipt sums up these findings (spec/07-host HOST-79)."""
    if any(len(one) != ID_BYTES for f in findings for one in (f.answer, f.render_digest)):
        raise ReceiptInvalid("an id or digest of a finding has not 32 bytes")
    try:
        summary = summary_of(findings)
    except struct.error as error:
        raise ReceiptInvalid(f"a number of a finding is out of range: {error}") from error
    stated = Summary(**{name: getattr(receipt, name) for name in Summary.__dataclass_fields__})
    if len({finding.answer for finding in findings}) < len(findings) or stated != summary:
        raise ReceiptInvalid("it is not the receipt of these findings")
    first = receipt.first, summary.outcome, receipt.first_cause, receipt.first_token
    found = {(f.answer, f.outcome, f.cause, f.token_index) for f in findings}
    if summary.outcome == Outcome.ACCEPTED:
        found = {(NO_ENTRY, Outcome.ACCEPTED, Cause.NONE, NO_TOKEN)}
    if first not in found:
        raise ReceiptInvalid("the first answer that it names is none of these findings")


def check_reply(
    receipt: Receipt,
    findings: Collection[Finding],
    *,
    host: PublicKey,
    conversation: ConversationId,
    mode: ReplayMode,
    from_entry: EntryId = NO_ENTRY,
) -> None:
    """Raise ReceiptInvalid unless this is the receipt of these findings and of what was asked."""
    check_receipt(receipt, host)
    stated = (receipt.conversation, receipt.mode, receipt.from_entry)
    if stated != (conversation, mode, from_entry):
        raise ReceiptInvalid("it is the receipt of another conversation, mode or first entry")
    check_findings(receipt, findings)
