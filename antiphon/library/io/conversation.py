"""A conversation of a replica, and its branches, in the async form."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from antiphon.library import events as e
from antiphon.library import news
from antiphon.library.errors import BranchUnbegun
from antiphon.library.given import (
    CALLS_MAX,
    Given,
    Policy,
    RunOptions,
    SamplingOptions,
    check_id,
    check_limit,
    check_text,
    parts_of,
)
from antiphon.library.io.feed import Feed
from antiphon.library.io.handle import Cursor, append, opened
from antiphon.library.io.members import Members
from antiphon.library.io.run import Run
from antiphon.library.io.steps import Items
from antiphon.library.tools import Tool, as_tools
from replica.conversation import (
    ABANDONED,
    closing_result,
    open_calls,
)
from replica.conversation import (
    Conversation as Held,
)
from replica.ids import EntryId, short
from replica.io import cancels, documents, turns
from replica.log import (
    Part,
)
from replica.order import branch_ends
from replica.refusals import ArgumentInvalid


class Conversation(Members):
    """One conversation: ask, say, run tools, read, branch.

    Entries written through it continue the branch of its last turn or, before its first turn,
    the branch with the latest activity.

    >>> answer = await trip.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """

    # --- asking -------------------------------------------------------------------------

    async def ask(
        self, content: str | Sequence[Part], /, **options: Unpack[RunOptions]
    ) -> e.Answer:
        """Ask and return the answer; the question is queued after any that is being answered.

        The options are those of `run`. Raises the refusal of the host or the hub,
        ArgumentInvalid, ToolUnsuitable, BodyTooLarge, NotAllowed for a reader, KeyRemoved and
        ConversationDeleted as `say` does, NoHost, HostMissing, AnswerOverdue, CallOpen, KeyReused,
        RunTooLong, ClockInvalid, PeerIdentityChanged, and ConversationUnknown as soon as the
        conversation is deleted here.

        >>> answer = await trip.ask("Capital of France?", key="job-17", max_tokens=100)
        >>> (await trip.ask("Capital of France?", key="job-17")).entry == answer.entry
        True
        """
        return await self.run(content, **options).result()

    def run(
        self,
        content: str | Sequence[Part],
        /,
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        key: str | None = None,
        retries: int = 0,
        max_tokens: int | None = None,
        policy: Policy | None = None,
        timeout_s: float | None = None,
        calls_max: int = CALLS_MAX,
        **sampling: Unpack[SamplingOptions],
    ) -> Run:
        """Return a turn; iterate over it to start it and to receive its events.

        The events are those of this turn, and nobody else's. `key` identifies the call: a run
        under the same key resumes after any crash. A finished one is answered from the log: it has
        no events, and `result` returns its answer. Two devices must not run one key at the same
        time: the call may be asked twice, and a tool with `resolve` may run on both (see `tool`).
        Without a key, an unfinished run cannot be found again: `finish` or `abandon` its open
        calls, or the branch waits for them. `retries` is the number of further requests after a
        refusal or an interruption, until a tool with an effect has started. `policy(answer)`
        returns the program's own next call, or None.
        `timeout_s` limits the time, in seconds, without a step of this turn or of one ahead of it.
        Time in which this process is stopped does not count.
        If the process that holds the folder is suspended meanwhile, the run waits 30 s for it.
        `calls_max` limits the tool calls under the key, including those of earlier runs. Further
        calls are not made but answered as errors, and the run ends with RunTooLong. The branch is
        then free; to continue, run it again under the same key with a larger `calls_max`.
        `max_tokens` defaults to the conversation's limit, else 512.
        Other keyword arguments are fields of Sampling, such as `temperature` and `seed`.
        Raises ArgumentInvalid and ToolUnsuitable for arguments that can't be used. Iterating over
        the run raises what `ask` raises.

        >>> run = trip.run("Book in Rome.", tools=[book], key="job-17", retries=1)
        >>> (await run.result()).text
        'You said: booked in Rome'
        """
        said, offered = parts_of(content), as_tools(tools)
        given = Given(
            said, offered, key, retries, policy, timeout_s, max_tokens, sampling, calls_max
        )
        return Run(self, given)

    async def say(self, content: str | Sequence[Part]) -> EntryId:
        """Write a message without asking for an answer; return its entry. Works offline.

        Raises ArgumentInvalid for an empty message, BodyTooLarge, NotAllowed for a reader,
        KeyRemoved and ConversationDeleted if the hub has reported this, BranchUnbegun on a branch
        that has no turn of its own, and ClockInvalid if the clock is set before 1970.
        A part that names a blob is written as given, whether or not anybody holds the blob.

        >>> entry = await trip.say("To be asked about later.")
        >>> [event.entry == entry for event in await trip.history()]
        [True]
        """
        await self.check_taken()
        async with self.moving():
            place, at = await self.place(), self._cursor.at
            if at is not None:  # without a request it would be on the other branches too
                raise BranchUnbegun(f"nothing was asked behind {short(at)} here")
            return (await turns.say(self.replica, self.id, parts_of(content), place)).id

    async def cancel(self, entry: EntryId | None = None) -> None:
        """End the answer to a request, by default of the last turn here, or withdraw a message.

        Withdrawing a message also cancels your open requests about it; no later answer reads it.
        Raises ArgumentInvalid for a message that an answer has read, or that another member's open
        request will read, and NotAllowed for another member's message, unless you are an owner.

        >>> answer = await trip.ask("Capital of France?")
        >>> await trip.cancel(answer.request)  # too late: nothing changes
        >>> len(await trip.history())
        2
        """
        held = await self._held()
        if entry is None:
            entry = self._cursor.request
        if entry is None:
            raise ArgumentInvalid("no turn was begun here: name the request")
        check_id(entry, "the request")
        is_request = entry in held.order.requests
        if not is_request and entry not in held.log.entries:
            raise ArgumentInvalid(f"{short(entry)} is no request or message of this conversation")
        await self.check_taken()
        end = cancels.cancel if is_request else cancels.withdraw
        await end(self.replica, self.id, entry)

    # --- branches -----------------------------------------------------------------------

    def at(self, entry: EntryId) -> "Branch":
        """Return a new branch that starts at an entry, such as an answer's; begin it with `ask`.

        Raises ArgumentInvalid if `entry` is not an id. If no such entry is here, the methods of
        the branch raise it.

        >>> first = await trip.ask("Capital of France?")
        >>> answer = await trip.at(first.entry).ask("And of Italy?")
        >>> answer.text
        'You said: And of Italy?'
        """
        check_id(entry, "the entry")
        return Branch(opened(self._replica), self.id, self._shared, Cursor(at=entry))

    async def branches(self) -> "tuple[Branch, ...]":
        """Return the branches; the one with the latest activity is last.

        >>> first = await trip.ask("Capital of France?")
        >>> answers = [await trip.at(first.entry).ask(text) for text in ("Italy?", "Spain?")]
        >>> len(await trip.branches())
        2
        """
        held = await self._held()
        return tuple(self._branch(node.seal.request) for node in branch_ends(held.order))

    async def switch(self, branch: "Branch | EntryId") -> None:
        """Continue on a branch from now on, given as a Branch or as any entry of one.

        Raises ArgumentInvalid for a branch or an entry of another conversation.

        >>> first = await trip.ask("Capital of France?")
        >>> answers = [await trip.at(first.entry).ask(text) for text in ("Italy?", "Spain?")]
        >>> await trip.switch(answers[0].entry)
        >>> (await trip.history())[-1].answer.text
        'You said: Italy?'
        """
        if isinstance(branch, Branch):
            if branch.id != self.id:
                raise ArgumentInvalid(f"{branch!r} is a branch of another conversation")
            async with self.moving():
                self._cursor = Cursor(branch._cursor.at, branch._cursor.request)
            return
        check_id(branch, "the entry")
        held = await self._held()
        tips = [node for node in branch_ends(held.order) if _holds(held, node.id, branch)]
        if not tips:
            raise ArgumentInvalid("no branch holds this entry")
        async with self.moving():
            self._cursor = Cursor(request=tips[-1].seal.request)

    def _branch(self, request: EntryId) -> "Branch":
        return Branch(self.replica, self.id, self._shared, Cursor(request=request))

    # --- reading ------------------------------------------------------------------------

    async def history(self) -> tuple[e.Event, ...]:
        """Return the branch from its start, as the model sees it, and what is not sealed yet.

        The events are Said, ToolCalled, ToolDone and Answered, in order. A system text is a Said
        with `is_system`. Messages of a removed key stay if the model has read them. A call in a
        message of a key that executes no calls is not a ToolCalled.

        >>> answer = await trip.ask("Capital of France?")
        >>> [type(event).__name__ for event in await trip.history()]
        ['Said', 'Answered']
        """
        held, place = await self._held(), await self.place()
        return tuple(news.history_of(held, place, self.replica.public))

    def events(self) -> Items[e.Event]:
        """Return an iterator over what happens in the conversation from now on.

        It ends only with the replica; it then raises ReplicaClosed. It keeps 10,000 events for a
        slow reader, where drafts of one answer count as one. If more come, it raises EventsMissed
        behind those that it kept.
        Raises ConversationUnknown, like `history`, once the conversation is deleted here. In the
        async form a wait that is cancelled, as by `asyncio.wait_for`, loses no event: the next one
        goes on; `aclose`, or the end of an `async with`, ends the iterator. The iterator of the
        blocking form has a `close`, which any thread may call, and can be used in a `with`.

        >>> events = trip.events()
        >>> entry = await trip.say("Good morning.")
        >>> async for event in events:
        ...     if isinstance(event, antiphon.Said):
        ...         print(event.text)
        ...         break
        Good morning.
        """
        return Feed(self.replica, self.id).events()

    async def title(self) -> str | None:
        """Return the title, from the shared document.

        >>> await trip.title() == "title"
        True
        """
        return documents.title_of(await self._held())

    async def rename(self, title: str) -> None:
        """Set the title for all members.

        It has 1 to 64 characters in one line, no spaces at its ends, and no joined emoji. Raises
        ArgumentInvalid for any other title, NotAllowed for a reader, and KeyRemoved,
        ConversationDeleted and ClockInvalid as `say` does.

        >>> await trip.rename("A trip")
        >>> await trip.title()
        'A trip'
        """
        await self.check_taken()
        await documents.set_title(self.replica, self.id, check_text(title, "the title"))

    async def sync(self, timeout_s: float = 20.0) -> bool:
        """Wait until hub and replica hold the same; return False after the timeout.

        Afterwards, everything that the hub held when you called `sync` is here, including what
        others wrote. Returns False immediately if the hub will never accept entries of this
        conversation again, or has refused the only ones that it lacks. Raises ReplicaClosed, also
        if the replica is closed during the call, and ConversationUnknown as soon as the
        conversation is deleted here.

        >>> await trip.sync(timeout_s=5.0)
        True
        """
        check_limit(timeout_s)
        await self._held()
        if await self.replica.wait_synced(self.id, timeout_s):
            return True
        await self._held()  # it may have been deleted meanwhile
        return False

    # --- tools --------------------------------------------------------------------------

    async def open_calls(self, *, all_members: bool = False) -> tuple[e.Call, ...]:
        """Return the calls without a result that this replica's key executes.

        With `all_members`, the calls of other members are included; an owner may abandon them.

        >>> await trip.open_calls()
        ()
        """
        me, held = self.replica.public, await self._held()
        return tuple(
            news.call_of(one.call)
            for one in open_calls(held)
            if all_members or one.asked.executor == me
        )

    async def finish(self, call_id: str, result: str, *, is_error: bool = False) -> None:
        """Append the result of an open call that this replica's key executes.

        If several calls have that id, the one on the branch of this handle is closed. Raises
        ArgumentInvalid if none is open or the id is ambiguous, NotAllowed, and BodyTooLarge.

        >>> run = trip.run("Book in Rome.", tools=[book])
        >>> async for event in run:
        ...     if isinstance(event, antiphon.ToolStarted):
        ...         break
        >>> call, = await trip.open_calls()
        >>> await trip.finish(call.id, "booked by hand")
        >>> await trip.open_calls()
        ()
        """
        if not isinstance(is_error, bool):
            raise ArgumentInvalid(f"is_error is {is_error!r}, not True or False")
        await self._close(call_id, result, is_error)

    async def abandon(self, call_id: str) -> None:
        """Close an open call as its requester, executor or an owner; the branch continues.

        Raises what `finish` raises.

        >>> run = trip.run("Book in Rome.", tools=[book])
        >>> async for event in run:
        ...     if isinstance(event, antiphon.ToolCalled):
        ...         break
        >>> await trip.abandon(event.call.id)
        >>> (await trip.ask("Capital of France?")).text
        'Paris.'
        """
        await self._close(call_id, ABANDONED, True)

    async def _close(self, call_id: str, text: str, is_error: bool) -> None:
        check_text(call_id, "the id of a call")
        check_text(text, "a result")
        held = await self._held()
        place, me = await self.place(), self.replica.public
        body, there = closing_result(held, place, call_id, me, text, is_error=is_error)
        await append(self, body, there)


class Branch(Conversation):
    """One branch of a conversation; everything written through it stays on the branch.

    On a branch that `at` returns, call `ask` or `run` first; until then `say` raises
    BranchUnbegun.

    >>> first = await trip.ask("Capital of France?")
    >>> other = trip.at(first.entry)
    >>> answer = await other.ask("And of Italy?")
    >>> len(await trip.branches())
    1
    >>> answer = await trip.at(first.entry).ask("And of Spain?")
    >>> len(await trip.branches())
    2
    """


def _holds(held: Held, tip: EntryId, entry: EntryId) -> bool:
    """Say whether the branch that ends in the seal `tip` holds an entry."""
    for node in held.order.nodes[tip].chain():
        if entry in (node.id, node.generation) or entry in node.seal.entries:
            return True
    return False
