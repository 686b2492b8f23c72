"""A model host with scripted answers: real replica, log, drafts and link.

It follows the conversations that list it as a host and answers requests that
name its key, one after the other. `reply` returns the tokens that a real host
would compute: token ids, each with the bytes it shows.

    async with scripted_host(folder, hub_address, lambda asked: words("Paris.")) as host: ...

Run as `python -m tests.support.scripted_host serve --hub … --data-dir …` it
keeps the same contract with a supervisor as `python -m model_host`.
"""

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from replica.imports import uncollected
from replica.log.entry import public_key

with uncollected():
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from model_host.refusals import finish_detail
    from model_host.scheduling import Begin, Bounds, Decision, GatherHeads, Refuse, Resume, Schedule
    from replica.conversation.conversation import Conversation
    from replica.conversation.drafts import Draft, Progress, extend_digest, sign_draft, start_digest
    from replica.conversation.next_seal import Sealable
    from replica.conversation.obligations import Asked as Calling
    from replica.conversation.obligations import Ledger
    from replica.core import FollowPolicy
    from replica.errors import HostError
    from replica.ids import (
        ConversationId,
        Digest,
        EntryId,
        PublicKey,
        key_from_hex,
        tagged_sha256,
    )
    from replica.io.driver.replica import Replica
    from replica.io.files.keys import load_or_create
    from replica.io.process.daemon import stop_with_supervisor
    from replica.io.serving.rpc import now_ms
    from replica.link.events import EntriesAdmitted, Event, StateChanged, SyncState
    from replica.link.messages import HostInfo, ProfileInfo
    from replica.log.body import (
        FinishReason,
        Generation,
        Join,
        Request,
        Sampling,
        Seal,
        Text,
        ToolCall,
        Usage,
        text_of,
    )

ADVISED = Sampling(temperature=0.6, top_k=20)
PROFILE = ProfileInfo(Digest(b"scripted profile".ljust(32, b".")), "Scripted", 8192, ADVISED)
RENDER_TAG = b"antiphon/test/render"

Token = tuple[int, bytes]
"""A token id and the visible bytes it adds."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a reply."""

    held: Conversation
    request_id: EntryId
    request: Request
    seal: Seal
    said: str
    """Text of the last message before the request."""


Reply = Callable[[Asked], Sequence[Token | ToolCall]]
"""The tokens of an answer, and the calls it ends with."""
Pace = Callable[[int], Awaitable[None]]
"""Awaited before the token with this index, so that a test can delay an answer."""


def words(text: str) -> list[Token]:
    """Return one token per word, with ids that depend on the word alone."""
    pieces = text.replace(" ", "\0 ").split("\0")
    return [(int.from_bytes(tagged_sha256(b"w", p.encode())[:2]), p.encode()) for p in pieces]


def echo(asked: Asked) -> list[Token]:
    """Answer with the text of the message."""
    return words(f"You said: {asked.said}")


async def no_pause(_index: int) -> None:
    """Continue at once, after the queued events."""
    await asyncio.sleep(0)


class ScriptedHost:
    """Answers open requests through `replica`, which follows as a host."""

    def __init__(self, replica: Replica, reply: Reply = echo, pace: Pace = no_pause) -> None:
        """Use a replica opened with `follow=True` and `host=host_info(key)`."""
        self.replica = replica
        self.answered = 0
        self.clock: Callable[[], float] = time.monotonic
        """Measures the times that an answer states."""
        self._reply = reply
        self._pace = pace
        self._schedule = Schedule(replica.public, Bounds(1, 1, 256))
        self._awake = asyncio.Event()
        replica.listen(self._receive)

    def _receive(self, event: Event) -> None:
        if isinstance(event, EntriesAdmitted) or (
            isinstance(event, StateChanged) and event.state is SyncState.SYNCHRONIZED
        ):
            self._awake.set()

    async def run(self) -> None:
        """Answer until cancelled."""
        while True:
            self._awake.clear()
            decision = self._schedule.start_next(
                self.replica.shelf.values(),
                is_synchronized=self._is_synchronized,
                now_ms=now_ms(),
            )
            if decision is None:
                await self._awake.wait()
                continue
            await self._act(self.replica.shelf[decision.conversation], decision)
            self._schedule.end(decision.request)

    def _is_synchronized(self, conversation: ConversationId) -> bool:
        return self.replica.hub.state(conversation) is SyncState.SYNCHRONIZED

    async def _act(self, held: Conversation, decision: Decision) -> None:
        match decision:
            case Begin(_, ready):
                await self._answer(held, ready)
            case Resume(_, request):
                # It was interrupted by a restart, and a scripted host keeps no journal.
                self._schedule.give_up(request)
            case Refuse():
                await self._refuse(decision)
            case GatherHeads(_, _, heads):
                await self.replica.append(held.id, Join(), parents=heads)

    async def _answer(self, held: Conversation, ready: Sealable) -> None:
        request = held.order.request(ready.request)
        assert request is not None, "a sealable entry is a request"
        if _open_calls(held, ready):
            self._schedule.wait(ready.request, len(held.log))
            return
        seal = self._seal(held, ready)
        asked = Asked(held, ready.request, request, seal, _last_text(held, ready))
        try:
            tokens = self._reply(asked)
        except HostError as error:
            detail = finish_detail(error)
            await self._refuse(Refuse(held.id, ready.request, FinishReason.REFUSED, detail))
            return
        prev = seal.prev_seal
        entry = await self.replica.append(held.id, seal, parents=(ready.request,), basis=prev)
        # Drafts are passed on only once the hub holds the seal.
        await self.replica.wait_for(lambda: not self.replica.hub.unsynced(held.id), 10.0)
        body = await self._stream(asked, tokens)
        await self.replica.append(held.id, body, parents=(entry.id,), basis=entry.id)
        self.answered += 1

    async def _refuse(self, refusal: Refuse) -> None:
        request = refusal.request
        await self.replica.append(refusal.conversation, refusal.body, parents=(request,))
        self.answered += 1

    def _seal(self, held: Conversation, ready: Sealable) -> Seal:
        counts = tuple(_tokens_of(held, entry_id) for entry_id in ready.entries)
        return Seal(
            request=ready.request,
            prev_seal=ready.parent.id if ready.parent is not None else None,
            entries=ready.entries,
            profile=PROFILE.digest,
            context_digest=ready.context_digest,
            render_digest=tagged_sha256(RENDER_TAG, ready.context_digest),
            tokens_per_entry=counts,
            membership_heads=ready.membership_heads,
        )

    async def _stream(self, asked: Asked, reply: Sequence[Token | ToolCall]) -> Generation:
        calls = tuple(one for one in reply if isinstance(one, ToolCall))
        tokens = [one for one in reply if not isinstance(one, ToolCall)]
        began = self.clock()
        usage = _usage(asked)
        run = int.from_bytes(os.urandom(8), "little") or 1
        digest = start_digest(asked.request_id, run)
        blank = Draft(asked.held.id, asked.request_id, run, 0, (), 0, b"", digest)
        progress = Progress(
            usage.prompt_tokens, usage.cached_tokens, 0, usage.prompt_tokens - usage.cached_tokens
        )
        self._send(replace(blank, progress=progress))
        shown, ids, first_token = b"", [], began
        finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
        for index, (token_id, data) in enumerate(tokens):
            await self._pace(index)
            if asked.held.order.is_cancelled(asked.request_id):
                finish = FinishReason.CANCELLED
                break
            digest = extend_digest(digest, (token_id,))
            offset = len(shown)
            frame = replace(blank, token_offset=index, token_ids=(token_id,), byte_offset=offset)
            self._send(replace(frame, data=data, digest=digest))
            first_token = first_token if ids else self.clock()
            shown, ids = shown + data, [*ids, token_id]
            if len(ids) == asked.request.output_tokens_max:
                finish = FinishReason.LENGTH
                break
        usage = replace(
            usage,
            output_tokens=len(ids),
            first_token_us=int((first_token - began) * 1e6),
            decode_us=int((self.clock() - first_token) * 1e6),
        )
        parts = (Text(shown.decode()),) if shown else ()
        return Generation(
            tuple(ids),
            (*parts, *calls),
            len(shown),
            finish,
            usage=usage,
            draft_digest=digest,
            run=run,
        )

    def _send(self, draft: Draft) -> None:
        self.replica.send_draft(sign_draft(draft, self.replica.key))


def host_info(key: Ed25519PrivateKey) -> HostInfo:
    """Return a scripted host's description of itself; it has no HostService."""
    return HostInfo(public_key(key), "", (PROFILE,))


@asynccontextmanager
async def scripted_host(
    folder: Path,
    hub_address: str,
    reply: Reply = echo,
    pace: Pace = no_pause,
    *,
    follow: bool | FollowPolicy = True,
    hub_key: PublicKey | None = None,
) -> AsyncIterator[ScriptedHost]:
    """Run a scripted host with its store and key in `folder`; linked when entered."""
    key = load_or_create(folder / "identity.key")
    path = folder / "log" / "log.db"
    async with Replica.open(
        path, key, hub_address, hub_key=hub_key, follow=follow, host=host_info(key)
    ) as replica:
        host = ScriptedHost(replica, reply, pace)
        task = asyncio.create_task(host.run(), name="scripted host")
        try:
            assert await replica.wait_for(lambda: replica.hub.is_linked, 30.0), "no link"
            yield host
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _open_calls(held: Conversation, ready: Sealable) -> tuple[str, ...]:
    """Return the open calls of a context, by the rule of every host (HOST-43)."""
    listed = held.order.context(ready.parent.id) if ready.parent is not None else []
    ledger = Ledger()
    owners = held.log.roster.at(ready.membership_heads).owner_keys()
    for entry in (*listed, *map(held.log.entries.__getitem__, ready.entries)):
        body, answered = held.log.body(entry.id), None
        if isinstance(body, Generation):
            request_id = held.order.nodes[entry.header.parents[0]].seal.request
            request = held.order.request(request_id)
            assert request is not None, "a seal that counts names a request"
            answered = Calling.of(held.log.entries[request_id].header.author, request)
        author_key = entry.header.author
        ledger, _ = ledger.after(author_key, body, answered=answered, owners=owners)
    return ledger.open_calls


def _tokens_of(held: Conversation, entry_id: EntryId) -> int:
    body = held.log.body(entry_id)
    if isinstance(body, Generation):
        return len(body.token_ids)
    return 1 + len(text_of(getattr(body, "parts", ()))) // 4


def _last_text(held: Conversation, ready: Sealable) -> str:
    texts = [text_of(getattr(held.log.body(i), "parts", ())) for i in ready.entries]
    return next((text for text in reversed(texts) if text), "")


def _usage(asked: Asked) -> Usage:
    """Count as a host would that has everything but the new entries cached."""
    new = sum(asked.seal.tokens_per_entry)
    node = asked.held.order.nodes.get(asked.seal.prev_seal or EntryId(b""))
    chain = node.chain() if node is not None else []
    old = sum(sum(n.seal.tokens_per_entry) for n in chain)
    return Usage(old + new, cached_tokens=old, prefilled_tokens=new)


async def _serve(hub: str, folder: Path, hub_key: PublicKey | None) -> None:
    async with scripted_host(folder, hub, hub_key=hub_key) as host:
        key = host.replica.public.hex()
        print(f"host 127.0.0.1:0 {key} {PROFILE.name} {PROFILE.digest.hex()}", flush=True)
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()


def main(arguments: Sequence[str]) -> None:
    """Serve with the flags of a supervisor; flags about models are ignored."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve", "pull", "list"])
    parser.add_argument("name", nargs="?")
    parser.add_argument("--hub")
    parser.add_argument("--hub-key", type=key_from_hex)
    parser.add_argument("--data-dir", type=Path)
    for flag in ("--model", "--numerics", "--listen", "--operator-key"):
        parser.add_argument(flag)
    given = parser.parse_args(arguments)
    if given.command == "serve":
        stop_with_supervisor()
        asyncio.run(_serve(given.hub, given.data_dir, given.hub_key))


if __name__ == "__main__":
    main(sys.argv[1:])
