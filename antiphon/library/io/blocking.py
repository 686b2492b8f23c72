"""The blocking form of the library, which `import antiphon` provides.

Each method runs that of the async form in a separate thread (portal.py).
"""

from contextlib import AbstractContextManager
from pathlib import Path

from antiphon.library import events as e
from antiphon.library.io import conversation as conversations
from antiphon.library.io import local as local_form
from antiphon.library.io import replica as replicas
from antiphon.library.io import run as runs
from antiphon.library.io.portal import (
    Blocking,
    Iteration,
    all_of,
    blocking,
    entered,
    iterating,
    returning,
)
from replica.ids import ConversationId, EntryId, PublicKey


class Run(Blocking):
    """One turn in progress: iterate over its events, then read its `answer`.

    Nothing happens until you start to iterate. The events are those of this turn alone: its Said,
    and Asked, Sealed, Draft, Discarded, Forked, ToolCalled, Answered, Refused, ToolStarted and
    ToolDone of its requests. `events` has all others. The drafts of a request after its last
    Discarded are the text of its answer.

    A run under a `key` resumes where an earlier one ended, whatever ended it. If another run has
    the key, this one shows what that one does, and an answer in progress from its beginning. A
    run that has ended has no events any more: `answer` and `result` have its answer. If you stop
    reading, the run keeps its key for 30 seconds, or until the result of a tool that has started.
    After that another run may take over the key; the next read follows that one.

    >>> run, shown = trip.run("Capital of France?", key="job-17"), ""
    >>> for event in run:
    ...     match event:
    ...         case antiphon.Draft(text):
    ...             shown += text
    ...         case antiphon.Discarded():
    ...             shown = ""
    >>> run.answer.text, run.answer.finish.name
    ('Paris.', 'STOP')
    """

    result = blocking(runs.Run.result)
    close = blocking(runs.Run.close)

    @property
    def answer(self) -> e.Answer:
        """The last answer.

        Raises RunUnfinished if the run has not ended, was closed, or ended with an error.
        """
        answer: e.Answer = self._core.answer
        return answer

    def __iter__(self) -> Iteration[e.Event]:
        """Iterate over the remaining events; leaving the loop closes the run."""
        return Iteration(self._portal, aiter(self._core))


class Conversation(Blocking):
    """One conversation: ask, say, run tools, read, branch.

    Entries written through it continue the branch of its last turn or, before its first turn,
    the branch with the latest activity.

    >>> answer = trip.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """

    ask = blocking(conversations.Conversation.ask)
    say = blocking(conversations.Conversation.say)
    run = returning(Run, conversations.Conversation.run)
    cancel = blocking(conversations.Conversation.cancel)
    history = blocking(conversations.Conversation.history)
    events = iterating(conversations.Conversation.events)
    title = blocking(conversations.Conversation.title)
    rename = blocking(conversations.Conversation.rename)
    sync = blocking(conversations.Conversation.sync)
    open_calls = blocking(conversations.Conversation.open_calls)
    finish = blocking(conversations.Conversation.finish)
    abandon = blocking(conversations.Conversation.abandon)
    grant = blocking(conversations.Conversation.grant)
    remove = blocking(conversations.Conversation.remove)
    invite = blocking(conversations.Conversation.invite)
    uninvite = blocking(conversations.Conversation.uninvite)

    def at(self, entry: EntryId) -> "Branch":
        """Return a new branch that starts at an entry, such as an answer's; begin it with `ask`.

        Raises ArgumentInvalid if `entry` is not an id. If no such entry is here, the methods of
        the branch raise it.
        """
        return Branch(self._portal, self._core.at(entry))

    def switch(self, branch: "Branch | EntryId") -> None:
        """Continue on a branch from now on, given as a Branch or as any entry of one.

        Raises ArgumentInvalid for a branch or an entry of another conversation.
        """
        there = branch._core if isinstance(branch, Branch) else branch
        self._portal.call(self._core.switch, there)

    def branches(self) -> "tuple[Branch, ...]":
        """Return the branches; the one with the latest activity is last."""
        found = self._portal.call(self._core.branches)
        return tuple(Branch(self._portal, one) for one in found)

    @property
    def id(self) -> ConversationId:
        """The id, 32 bytes."""
        found: ConversationId = self._core.id
        return found


class Branch(Conversation):
    """One branch of a conversation; everything written through it stays on the branch.

    On a branch that `at` returns, call `ask` or `run` first; until then `say` raises
    BranchUnbegun.

    >>> first = trip.ask("Capital of France?")
    >>> other = trip.at(first.entry)
    >>> answer = other.ask("And of Italy?")
    >>> len(trip.branches())
    1
    >>> answer = trip.at(first.entry).ask("And of Spain?")
    >>> len(trip.branches())
    2
    """


class Replica(Blocking):
    """The conversations of one key on this machine; works offline.

    >>> found = me.conversation("trip", system="Be brief.")
    >>> found.id in [one.id for one in me.conversations()]
    True
    """

    conversation = returning(Conversation, replicas.Replica.conversation)
    conversations = returning(all_of(Conversation), replicas.Replica.conversations)
    get = returning(Conversation, replicas.Replica.get)
    join = returning(Conversation, replicas.Replica.join)
    events = iterating(replicas.Replica.events)
    sync = blocking(replicas.Replica.sync)

    @property
    def key(self) -> PublicKey:
        """The public key of this replica."""
        key: PublicKey = self._core.key
        return key

    @property
    def is_linked(self) -> bool:
        """Whether the hub is linked now."""
        return bool(self._core.is_linked)


def open_replica(
    folder: str | Path,
    *,
    hub: str | None = None,
    host: str | PublicKey | None = None,
    label: str | None = None,
) -> AbstractContextManager[Replica]:
    """Open a replica in a folder, created if needed, and link it to a hub; close it on exit.

    This is the blocking form of `antiphon.aio.open`.

    >>> with antiphon.open("~/agent", hub="127.0.0.1:7411", label="agent") as me:
    ...     trip = me.conversation("trip")
    ...     answer = trip.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """
    opening = replicas.open_replica(folder, hub=hub, host=host, label=label)
    return entered(opening, Replica)


def join(
    code: str, folder: str | Path, *, timeout_s: float | None = None
) -> AbstractContextManager[Conversation]:
    """Join with a code as the replica in a folder, created if needed; close it on exit.

    This is the blocking form of `antiphon.aio.join`.

    >>> code = trip.invite("bob")
    >>> with antiphon.join(code, "~/bob") as shared:
    ...     answer = shared.ask("Capital of France?")
    >>> answer.text
    'Paris.'
    """
    return entered(replicas.join(code, folder, timeout_s=timeout_s), Conversation)


def local_replica(
    folder: str | Path = local_form.FOLDER,
    *,
    model: str | None = None,
    host_module: str = "model_host",
) -> AbstractContextManager[Replica]:
    """Start a hub and a model host, and open a replica linked to them; stop all on exit.

    This is the blocking form of `antiphon.aio.local`.

    >>> with antiphon.local() as me:
    ...     me.sync()
    True
    """
    opening = local_form.local_replica(folder, model=model, host_module=host_module)
    return entered(opening, Replica)
