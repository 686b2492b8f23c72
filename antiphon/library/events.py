"""The events of conversations: frozen dataclasses, combined in the union `Event`.

Pure. Fields that a `match` reads by position are first. Ids are bytes, as in the log. An
event about an entry has the id of the entry, and each event has that of its conversation.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from replica.ids import ConversationId, EntryId, PublicKey
from replica.log import FinishReason, Usage

_NONE, _NOWHERE = EntryId(b""), ConversationId(b"")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call: its id, the tool's name, and its arguments as JSON text.

    >>> Call("1", "book", '{"city": "Rome"}').arguments
    {'city': 'Rome'}
    """

    id: str
    name: str
    arguments_json: str = "{}"

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name. Raises ValueError if they cannot be read as a JSON object."""
        try:
            arguments = json.loads(self.arguments_json or "{}")
        except RecursionError as error:
            raise ValueError("the arguments of a call are nested too deeply") from error
        if not isinstance(arguments, dict):
            raise ValueError("the arguments of a call are a JSON object")  # noqa: TRY004  # as json does
        return arguments


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a model: its text, its usage, and its entry in the log.

    >>> Answer("Paris.", Usage(output_tokens=2), EntryId(b"id")).finish.name
    'STOP'
    """

    text: str
    usage: Usage
    entry: EntryId
    request: EntryId = _NONE
    finish: FinishReason = FinishReason.STOP
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """A member wrote a message; `label` is the name that its program gave itself, if any.

    `is_system` is true for a system text, such as that of `Replica.conversation`.

    >>> answer = trip.ask("Capital of France?")
    >>> [event.text for event in trip.history() if isinstance(event, antiphon.Said)]
    ['Capital of France?']
    """

    who: PublicKey
    text: str
    entry: EntryId = _NONE
    label: str = field(default="", kw_only=True)
    is_system: bool = field(default=False, kw_only=True)
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A member withdrew its own message, or an owner any message: no later answer reads it.

    If two members withdraw it independently, there may be two events.

    >>> note = trip.say("Never mind.")
    >>> trip.cancel(note)
    >>> [event for event in trip.history() if event.entry == note]
    []
    """

    who: PublicKey
    message: EntryId
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Asked:
    """A member asked a model to answer.

    >>> run = trip.run("Capital of France?")
    >>> [event.who == me.key for event in run if isinstance(event, antiphon.Asked)]
    [True]
    """

    who: PublicKey
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Sealed:
    """A host started an answer; the context of the request is now fixed.

    >>> run = trip.run("Capital of France?")
    >>> [event.conversation == trip.id for event in run if isinstance(event, antiphon.Sealed)]
    [True]
    """

    request: EntryId
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Draft:
    """The next part of an answer's text, before the answer is in the log.

    >>> run = trip.run("Capital of France?")
    >>> [event.text for event in run if isinstance(event, antiphon.Draft)]
    ['Paris.']
    """

    text: str
    request: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Discarded:
    """The drafted answer to a request is void: the host started again.

    >>> answer = trip.ask("Capital of France?")
    >>> match antiphon.Discarded(answer.request):
    ...     case antiphon.Discarded(request):
    ...         request == answer.request
    True
    """

    request: EntryId
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer is in the log.

    >>> run = trip.run("Capital of France?")
    >>> [event.answer.text for event in run if isinstance(event, antiphon.Answered)]
    ['Paris.']
    """

    answer: Answer
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Refused:
    """A host refused a request; `reason` is one of those in spec/10-errors.

    >>> match antiphon.Refused("CONTEXT_TOO_LONG", "the prompt has 9,000 tokens"):
    ...     case antiphon.Refused(reason, detail):
    ...         reason
    'CONTEXT_TOO_LONG'
    """

    reason: str
    detail: str
    request: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool call was requested, by the model or by the executor's program.

    >>> run = trip.run("Book in Rome.", tools=[book])
    >>> [event.call.arguments['city'] for event in run if isinstance(event, antiphon.ToolCalled)]
    ['Rome']
    """

    call: Call
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool with an effect is about to run.

    >>> run = trip.run("Book in Rome.", tools=[book])
    >>> [event.call.name for event in run if isinstance(event, antiphon.ToolStarted)]
    ['book']
    """

    call: Call
    effect_key: str
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class ToolDone:
    """A tool call has a result.

    >>> run = trip.run("Book in Rome.", tools=[book])
    >>> [event.result for event in run if isinstance(event, antiphon.ToolDone)]
    ['booked in Rome']
    """

    call: Call
    result: str
    is_error: bool = False
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Forked:
    """A second branch started: `mine` and `theirs` are the seals at which the branches diverge.

    >>> answer = trip.ask("Capital of France?")
    >>> match antiphon.Forked(answer.entry, answer.request):
    ...     case antiphon.Forked(mine, theirs):
    ...         mine == answer.entry
    True
    """

    mine: EntryId
    theirs: EntryId
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Diverged:
    """A device wrote two histories, for example after a restored backup; both are kept.

    >>> match antiphon.Diverged(me.key):
    ...     case antiphon.Diverged(who):
    ...         who == me.key
    True
    """

    who: PublicKey
    entry: EntryId = _NONE
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class Repaired:
    """Entries that this replica's store had lost were restored.

    >>> match antiphon.Repaired(3):
    ...     case antiphon.Repaired(entries):
    ...         entries
    3
    """

    entries: int
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class SyncChanged:
    """The state between this replica and its hub changed; see `state` in spec/04-link.

    >>> match antiphon.SyncChanged("synchronized", trip.id):
    ...     case antiphon.SyncChanged(state, conversation):
    ...         state
    'synchronized'
    """

    state: str
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class MemberChanged:
    """A key was given a role, or was removed if `role` is None.

    >>> match antiphon.MemberChanged(me.key, None):
    ...     case antiphon.MemberChanged(who, None):
    ...         who == me.key
    True
    """

    who: PublicKey
    role: str | None
    conversation: ConversationId = _NOWHERE


@dataclass(frozen=True, slots=True)
class HostChanged:
    """The hub reported the model hosts that are linked to it.

    Sent when this replica links. Later changes are reported only after it asks the hub again:
    before it grants a conversation to a host, and before it asks a host that was not linked.

    >>> match antiphon.HostChanged((me.key,)):
    ...     case antiphon.HostChanged(hosts):
    ...         len(hosts)
    1
    """

    hosts: tuple[PublicKey, ...]


Event = (
    Said
    | Withdrawn
    | Asked
    | Sealed
    | Draft
    | Discarded
    | Answered
    | Refused
    | ToolCalled
    | ToolStarted
    | ToolDone
    | Forked
    | Diverged
    | Repaired
    | SyncChanged
    | MemberChanged
    | HostChanged
)
