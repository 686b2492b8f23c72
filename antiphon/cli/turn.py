"""One turn at the command line: checks, request options, and the choices saved for the next.

A request may state its latest start (DECISIONS D56).
"""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from antiphon.cli.errors import MessageTooLong, ReadOnlyHere
from antiphon.cli.rows import generation_record, words_of
from antiphon.cli.session import Choices, Session
from replica.conversation import Conversation, Place
from replica.ids import EntryId, PublicKey, short
from replica.io import Replica, RequestOptions, TurnEvent, choose_host, now_ms, turns
from replica.limits import BODY_BYTES_MAX
from replica.log import Genesis, Kind, Sampling
from replica.refusals import ArgumentInvalid

SEED_BITS = 63
TEXT_BYTES_MAX = BODY_BYTES_MAX - 256
"""Bytes of a body without salt and framing."""


def check_text(text: str) -> str:
    """Return the text if it fits an entry. Raises ArgumentInvalid, MessageTooLong."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise ArgumentInvalid("the text is not valid UTF-8") from error
    if size > TEXT_BYTES_MAX:
        raise MessageTooLong(f"the text has {size:,} bytes, and {TEXT_BYTES_MAX:,} fit")
    return text


def may_write(replica: Replica, held: Conversation) -> bool:
    """Say whether this replica's key may write messages."""
    return held.log.membership.may_write(replica.public, Kind.MESSAGE)


def check_role(replica: Replica, held: Conversation) -> None:
    """Raise ReadOnlyHere or ConversationDamaged unless this key may write messages now."""
    held.require_whole()
    if not may_write(replica, held):
        raise ReadOnlyHere(f"your key {short(replica.public)} is no writer of {short(held.id)}")


def options_for(
    replica: Replica,
    held: Conversation,
    choices: Choices,
    *,
    host: PublicKey | None = None,
    changes: dict[str, Any] | None = None,
) -> RequestOptions:
    """Return the request options: the conversation's defaults with `changes`.

    Without a seed a random one is drawn, so that every answer can be reproduced.
    Raises HostMissing.
    """
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    within_s = given.pop("answer_within_s", None)
    answer_by_ms = now_ms() + int(within_s * 1000) if within_s is not None else 0
    tokens_max = given.pop("output_tokens_max", choices.output_tokens_max)
    genesis = held.log.body(EntryId(held.id))
    defaults = genesis.default_sampling if isinstance(genesis, Genesis) else None
    sampling = replace(defaults or Sampling(), **given)
    if not sampling.seed:
        seed = int.from_bytes(os.urandom(8), "little") >> (64 - SEED_BITS) or 1
        sampling = replace(sampling, seed=seed)
    linked = tuple(known.key for known in replica.hub.hosts)
    return RequestOptions(
        choose_host(held, linked, host), sampling, tokens_max, tuple(choices.stop), answer_by_ms
    )


async def run_turn(
    session: Session,
    replica: Replica,
    held: Conversation,
    text: str | None,
    place: Place,
    options: RequestOptions,
    *,
    silence_max_s: float | None = None,
) -> AsyncIterator[TurnEvent]:
    """Write the turn and yield its events; the next message follows this request.

    Raises ReadOnlyHere, and the errors of `turns.ask`.
    """
    check_role(replica, held)
    choices = await session.choices(replica.store, held.id)
    events = turns.ask(replica, held.id, text, place, options, silence_max_s=silence_max_s)
    async for event in events:
        if isinstance(event, turns.Asked):
            choices.at, choices.branch = "", event.request.hex()
            await session.choose_next(replica.store, held.id, choices)
        yield event


def turn_record(
    held: Conversation, asked: turns.Asked | None, finished: turns.Finished | None
) -> dict[str, Any]:
    """Return a turn as a JSON object."""
    record: dict[str, Any] = {"conversation": held.id.hex()}
    if asked is not None:
        record["message"] = asked.message.hex() if asked.message is not None else None
        record["request"] = asked.request.hex()
    if finished is not None:
        record["generation"] = finished.id.hex()
        record |= generation_record(finished.generation)
        record["text"] = words_of(finished.generation.parts)
    return record
