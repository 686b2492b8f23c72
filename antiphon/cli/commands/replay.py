"""`antiphon replay`: let a model host compute a conversation again, and check its answers.

The host reports each answer and signs a receipt of the whole, which can be kept and
checked later without the host.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from antiphon.cli.common import (
    ChecksFailed,
    ConversationArgument,
    NothingYet,
    Session,
    UsageInvalid,
    check_creatable,
    check_readable,
    command,
    find_entry,
    linked_host,
    new_file,
    parse_key,
    read_file,
)
from antiphon.cli.views import Output, counted
from replica.conversation import (
    NO_TOKEN,
    Cause,
    Conversation,
    Finding,
    Outcome,
    Receipt,
    ReceiptInvalid,
    ReplayMode,
    check_receipt,
)
from replica.ids import EntryId, PublicKey, short
from replica.io import (
    HostCalls,
    ReplayEvent,
    ReplayProgress,
    Replica,
    decode_receipt,
    encode_receipt,
)
from replica.limits import FRAME_BYTES_MAX

_RECEIPT_BYTES_MAX = 2 * FRAME_BYTES_MAX
"""More than a receipt has, which comes in one message."""
_DATES_END_MS = int(datetime(MAXYEAR, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp() + 1) * 1000
_INDENT = " " * 7
MARKS = {
    Outcome.ACCEPTED: ("ok  ", "bold green"),
    Outcome.DIFFERS: ("bad ", "bold red"),
    Outcome.UNDECIDED: ("open", "yellow"),
}
_NO_ANSWER = ("none", "yellow")


_NOT_LOADED = ("PROFILE_TOO_LARGE", "PROFILE_UNAVAILABLE")
"""Reasons at the beginning of a detail: the host offers the profile, and can't load it."""
_OTHER_PROFILE = (Cause.OTHER_WEIGHTS, Cause.OTHER_NUMERICS, Cause.OTHER_TEMPLATE)


class ReplayUndecided(ChecksFailed):
    """The host can't judge all answers; the lines above say why."""

    next_step = (
        "Replay with `--host KEY` at a host that offers the profiles of these answers, in the"
        " same numerics class and with the same recipes."
    )


class ReplayNotLoaded(ReplayUndecided):
    """The host can't load the profiles of some answers; the lines above say why."""

    next_step = (
        "Let the host's operator remove the cause, or replay with `--host KEY` at another host that"
        " offers these profiles."
    )


class ReplayDiffers(ChecksFailed):
    """An answer is not what the host computes from the log."""

    next_step = "Compare with another host of the same profile; else don't rely on these answers."


class NothingReplayed(NothingYet):
    """A replay checks answers, and there was none."""

    next_step = "Ask a question first; `antiphon log` shows the answers."


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "replay", rich_help_panel="Keep")(replay)


async def replay(
    session: Session,
    conversation: ConversationArgument = None,
    *,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild/--verify",
            help="Compute all contexts and compare what is cached; or check every token.",
        ),
    ] = False,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="ENTRY",
            help="Only answers with this entry in their context, or this answer itself.",
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="KEY", help="The host to ask.")
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option("--receipt", metavar="FILE", help="Save the receipt.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Check a saved receipt, without a host."),
    ] = None,
) -> None:
    """Compute a conversation again at its host; exit 1 unless all is accepted."""
    wanted = parse_key(host) if host is not None else None
    if check is not None:
        if rebuild or from_ is not None or receipt is not None or force:
            raise UsageInvalid(
                "--check reads a saved receipt, without --rebuild, --from, --receipt and --force"
            )
        saved = decode_receipt(read_file(check, _RECEIPT_BYTES_MAX))
        check_saved(session.out, saved, wanted, conversation)
        return
    if receipt is not None:
        check_creatable(receipt, force=force)
    async with session.replica() as replica:
        chosen = await session.choose(replica.store, conversation)
        await replica.load(chosen)
        await session.sync(replica, chosen)
        held = check_readable(await replica.load(chosen))
        mode = ReplayMode.REBUILD if rebuild else ReplayMode.VERIFY
        first = find_entry(held, from_) if from_ is not None else None
        got, findings = await _ask(session, replica, held, wanted, mode, first)
    if receipt is not None:
        with new_file(receipt, force=force) as stream:
            stream.write(encode_receipt(got))
    conclude(session.out, got, held, findings)


async def _ask(
    session: Session,
    replica: Replica,
    held: Conversation,
    wanted: PublicKey | None,
    mode: ReplayMode,
    first: EntryId | None,
) -> tuple[Receipt, list[Finding]]:
    """Show the findings as they come; return the receipt and them. Raises ReceiptInvalid."""
    host = linked_host(replica, held, wanted)
    async with HostCalls(host.info.address, replica.key, host.key) as calls:
        return await follow(session.out, held, calls.replay(held.id, mode, first))


async def follow(
    out: Output, held: Conversation, events: AsyncIterator[ReplayEvent]
) -> tuple[Receipt, list[Finding]]:
    """Show what comes; return the receipt and the findings at the end. Raises ReceiptInvalid."""
    findings: list[Finding] = []
    with out.people.status("replaying") as status:
        async for event in events:
            match event:
                case ReplayProgress(done, total):
                    status.update(f"replaying: {done:,} of {total:,} tokens")
                    status.start()
                case Finding():
                    # A line of data would continue the status, which rich draws on stderr alone.
                    status.stop()
                    show(out, held, event)
                    findings.append(event)
                case Receipt():
                    return event, findings
    raise ReceiptInvalid("the host ended the replay without one")


# --- what is shown --------------------------------------------------------------------


def show(out: Output, held: Conversation, finding: Finding) -> None:
    """Show what the replay says of one answer."""
    if out.as_json:
        out.emit({"finding": _record(finding)})
        return
    spent = f"{finding.prompt_tokens:,} + {counted(finding.output_tokens, 'token', 'tokens')}"
    why = [_cause_words(finding.cause)] if finding.cause != Cause.NONE else []
    if _is_not_loaded(finding):
        why = ["profile not loaded"]
    if finding.token_index != NO_TOKEN:
        why.append(f"at output token {finding.token_index}")
    if finding.entry:
        why.append(f"at entry {short(finding.entry)}")
    head = Text.assemble(_mark(finding.outcome), f" answer {short(finding.answer)}  ")
    out.item(head, spent, *filter(None, [" ".join(why)]))
    for words in (*_details(finding), *_profile_words(held, finding)):
        out.item(Text(_INDENT), words, style="dim")
    if finding.answer not in held.log.entries:
        out.note(f"{short(finding.answer)} is not in the log here")


def _is_not_loaded(finding: Finding) -> bool:
    """Say whether the host offers the profile of an answer, and can't load it.

    The protocol has no cause of its own for that: the detail begins with the reason.
    """
    reason, *_ = finding.detail.split(":", 1)
    return finding.cause == Cause.OTHER_WEIGHTS and reason in _NOT_LOADED


def _details(finding: Finding) -> Iterator[str]:
    if finding.detail:
        yield finding.detail
    if finding.differing_tokens:
        yield f"{finding.differing_tokens} of {finding.checked_tokens} tokens differ"
    if finding.logprobs:
        mean = sum(finding.logprobs) / len(finding.logprobs)
        yield f"log probability per token: mean {mean:.2f}, least {min(finding.logprobs):.2f}"


def _profile_words(held: Conversation, finding: Finding) -> Iterator[str]:
    """Yield the profile of an answer that this host can't judge for want of it."""
    node = held.order.nodes.get(finding.seal)
    if node is not None and finding.cause in _OTHER_PROFILE:
        yield f"answered under the profile {short(node.seal.profile)}"


def _mark(outcome: int) -> tuple[str, str]:
    known = outcome in tuple(Outcome)
    return MARKS[Outcome(outcome)] if known else (f"{outcome:<4}", "yellow")


def _cause_words(cause: int) -> str:
    known = cause in tuple(Cause)
    return Cause(cause).name.lower().replace("_", " ") if known else f"cause {cause}"


def _record(made: Finding | Receipt) -> dict[str, Any]:
    """Return a finding or receipt as a JSON object, with bytes in hex and names for numbers."""
    names = {"outcome": Outcome, "cause": Cause, "first_cause": Cause, "mode": ReplayMode}
    record: dict[str, Any] = {}
    for name, value in asdict(made).items():
        kind = names.get(name)
        if name == "further":
            record[name] = [{key: digest.hex() for key, digest in judge.items()} for judge in value]
        elif isinstance(value, bytes):
            record[name] = value.hex()
        elif kind is not None and value in tuple(kind):
            record[name] = kind(value).name.lower()
        else:
            record[name] = value
    return record


def conclude(
    out: Output, receipt: Receipt, held: Conversation, findings: Sequence[Finding]
) -> None:
    """Show the receipt of a replay.

    Raises ReplayDiffers, ReplayUndecided or NothingReplayed.
    """
    _show_receipt(out, receipt)
    if receipt.log_digest != held.log.digest:
        out.note(f"the host replayed a log of {receipt.entries} entries, not the one here")
    _judge(receipt, findings)


def _judge(receipt: Receipt, findings: Sequence[Finding] = ()) -> None:
    """Raise an error unless the receipt accepts all answers, and these are not none.

    The findings, where they are known, decide what to do about undecided ones.
    """
    if receipt.differing or receipt.outcome == Outcome.DIFFERS:
        raise ReplayDiffers(f"{counted(receipt.differing, 'answer differs', 'answers differ')}")
    if receipt.undecided or receipt.outcome != Outcome.ACCEPTED:
        undecided = counted(receipt.undecided, "answer is", "answers are")
        open_ = [each for each in findings if each.outcome == Outcome.UNDECIDED]
        are_not_loaded = bool(open_) and all(map(_is_not_loaded, open_))
        error = ReplayNotLoaded if are_not_loaded else ReplayUndecided
        raise error(f"{undecided} undecided")
    if not receipt.accepted:
        raise NothingReplayed("the receipt is of no answer")


def _show_receipt(out: Output, receipt: Receipt) -> None:
    if out.as_json:
        out.emit({"receipt": _record(receipt)})
        return
    answers = receipt.accepted + receipt.differing + receipt.undecided
    mark = _mark(receipt.outcome) if answers else _NO_ANSWER
    out.item(
        Text.assemble(mark, f" {short(receipt.conversation)}  "),
        f"{receipt.accepted} accepted, {receipt.differing} differ, {receipt.undecided} undecided",
        f"{counted(receipt.tokens, 'token', 'tokens')} checked",
    )
    mode = ReplayMode(receipt.mode).name if receipt.mode in tuple(ReplayMode) else receipt.mode
    made = f"{mode} by host {short(receipt.host)}"
    of = f"of {counted(receipt.entries, 'entry', 'entries')}, digest {short(receipt.log_digest)}"
    out.item(Text(_INDENT), made, f"on {_when(receipt.time_ms)}", of, style="dim")
    unchecked = ", ".join(_unchecked(receipt))
    if unchecked:
        out.item(Text(_INDENT), unchecked, style="dim")
    if receipt.further:
        judges = (receipt.profile, *(judge.profile for judge in receipt.further))
        out.item(Text(_INDENT), f"under the profiles {', '.join(map(short, judges))}", style="dim")


def _when(time_ms: int) -> str:
    """Return the time that a host states, as a date where there is one."""
    if time_ms >= _DATES_END_MS:
        return f"a date behind the year {MAXYEAR}"
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _unchecked(receipt: Receipt) -> Iterator[str]:
    """Yield the requests of the conversation that have no answer to check."""
    if receipt.refused:
        was = counted(receipt.refused, "request was", "requests were")
        yield f"{was} refused, or cancelled before the answer began"
    if receipt.open:
        yield f"{counted(receipt.open, 'request has', 'requests have')} no answer yet"


def check_saved(
    out: Output, receipt: Receipt, host: PublicKey | None, conversation: str | None
) -> None:
    """Show a saved receipt that verifies; `conversation` are first digits of the one expected.

    Raises ReceiptInvalid, ReplayDiffers, ReplayUndecided or NothingReplayed.
    """
    check_receipt(receipt, host)
    if conversation is not None:
        wanted = conversation.strip().lower()
        if not wanted or not receipt.conversation.hex().startswith(wanted):
            its = short(receipt.conversation)
            raise ReceiptInvalid(f"it is the receipt of conversation {its}, not of '{wanted}'")
    _show_receipt(out, receipt)
    if receipt.first and not out.as_json:
        where = f" at output token {receipt.first_token}" if receipt.first_token != NO_TOKEN else ""
        words = f"{_cause_words(receipt.first_cause)}{where}"
        out.item(Text(_INDENT), f"first: answer {short(receipt.first)}", words, style="dim")
    if host is None:
        out.note(f"signed by {receipt.host.hex()}; give --host KEY to expect that key")
    _judge(receipt)
