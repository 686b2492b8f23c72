"""The listed conversations that a replica opens, by its policy (spec/04-link §4, 07-host §1).

Pure. A hub lists what others grant, so the list is as long as strangers like. A policy bounds
the conversations that are open, in all and per creator; the others are opened when somebody
asks for them, in place of those that were idle for longest. Creators that ask take turns.

    listed ─► waiting ─► open ─► closed when idle, or in place of another
                │                  ▲
                └─► known ─► asked ┘
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass
from enum import Enum

from replica.core.asked import Asked
from replica.core.open_listed import Creator, OpenListed, UseOf
from replica.ids import ConversationId, PublicKey
from replica.limits import CONVERSATIONS_PER_LINK_MAX, LISTED_MAX, OPENING_MAX
from replica.link import ListingItem

FOLLOWED_MAX = CONVERSATIONS_PER_LINK_MAX
"""Conversations followed because a hub lists them: invented ones cost bounded memory."""
RETRY_S = 1.0
"""Time after which room is looked for again, where there was none."""


@dataclass(frozen=True, slots=True)
class FollowPolicy:
    """The listed conversations that are opened; by default all, up to the bound."""

    creators: frozenset[PublicKey] | None = None
    """Creators whose conversations are opened; None for anyone's."""
    conversations: frozenset[ConversationId] = frozenset()
    """Conversations that are opened whoever created them."""
    open_max: int = FOLLOWED_MAX
    per_creator_max: int = FOLLOWED_MAX
    unasked_max: int = FOLLOWED_MAX
    """Open conversations up to which one is opened that nobody asks for."""
    idle_s: float | None = None
    """Time without an entry after which one is closed; None for never."""

    def admits(self, conversation: ConversationId, creator: PublicKey | None) -> bool:
        """Say whether a conversation may be opened; None is a creator that nobody states."""
        if self.creators is None or conversation in self.conversations:
            return True
        return creator in self.creators


class LeftOut(Enum):
    """Why a listed conversation is not open."""

    CREATOR = "creator"
    """The policy does not name its creator."""
    NO_ROOM = "no_room"
    """It is asked for, and all that are open are in use."""
    NOT_ASKED = "not_asked"
    """It is opened once somebody asks for it."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The conversations to open and to close now."""

    open: tuple[ConversationId, ...] = ()
    close: tuple[ConversationId, ...] = ()


class Selection:
    """The listed conversations of one replica, and those of them that are open."""

    def __init__(self, policy: FollowPolicy) -> None:
        """Start with none."""
        self._policy = policy
        self._creator: dict[ConversationId, Creator] = {}
        """All that are known, with the creators that the hub states or the genesis proves."""
        self._waiting: dict[ConversationId, None] = {}
        """Listed, and not yet considered."""
        self._asked = Asked()
        self._refused: dict[ConversationId, Creator] = {}
        """Listed ones whose creators the policy refuses, LISTED_MAX at most, the newest of them."""
        self.open = OpenListed()
        self._opening: set[ConversationId] = set()
        self._retry_at: float | None = None

    # --- inputs -------------------------------------------------------------------------

    def add(self, items: Iterable[ListingItem]) -> None:
        """Note listed conversations, LISTED_MAX at most; one that is asked for replaces another."""
        for item in items:
            conversation = item.conversation
            if not self._policy.admits(conversation, item.creator):
                if conversation not in self._creator:
                    self._refused[conversation] = item.creator
                if len(self._refused) > LISTED_MAX:
                    del self._refused[next(iter(self._refused))]
                continue
            if conversation not in self._creator:
                if len(self._creator) >= LISTED_MAX and not self._replace_one(item):
                    continue
                self._refused.pop(conversation, None)
                self._creator[conversation] = item.creator
                self._waiting[conversation] = None
            if item.awaited:
                self.ask(conversation)

    def _replace_one(self, item: ListingItem) -> bool:
        """Forget one for an item that is asked for; return False if it takes nobody's place.

        That is the latest that nobody asks for, or the latest of a creator with most.
        """
        if not item.awaited:
            return False
        if self._waiting:
            latest, _ = self._waiting.popitem()
        else:
            found = self._asked.take_latest(item.creator)
            if found is None:
                return False
            latest = found
        if latest not in self.open:
            del self._creator[latest]
        return True

    def ask(self, conversation: ConversationId) -> None:
        """Note that somebody asks for a conversation; nothing follows if the policy refuses it."""
        if conversation in self.open or not self.may_open(conversation):
            return
        self._waiting.pop(conversation, None)
        self._asked.add(self._creator[conversation], conversation)

    def note_decided(self, conversation: ConversationId) -> None:
        """Note that a conversation is synchronized or refused."""
        self._opening.discard(conversation)

    def identify(self, conversation: ConversationId, creator: PublicKey) -> bool:
        """Note the creator that the genesis proves; return False if it is not to be open."""
        if conversation not in self.open or self._creator[conversation] == creator:
            return True
        used_at = self.open.used_at[conversation]
        self.remove(conversation)
        self._creator[conversation] = creator
        if not self._policy.admits(conversation, creator):
            return False
        self._begin(conversation, used_at)
        self._opening.discard(conversation)
        return True

    def remove(self, conversation: ConversationId) -> None:
        """Note that an open conversation is closed."""
        self._opening.discard(conversation)
        self.open.remove(conversation)

    def forget(self, conversation: ConversationId) -> None:
        """Note that a conversation is followed in any case, or deleted."""
        self.remove(conversation)
        self._waiting.pop(conversation, None)
        creator = self._creator.pop(conversation, None)
        self._asked.discard(creator, conversation)
        self._refused.pop(conversation, None)

    def end_link(self) -> None:
        """Forget what is not open: the next link lists it again."""
        self._waiting.clear()
        self._asked.clear()
        self._refused.clear()
        self._opening.clear()
        self._retry_at = None
        self._creator = {one: self._creator[one] for one in self.open}

    # --- decisions ----------------------------------------------------------------------

    def next(self, now: float, others: int, use_of: UseOf) -> Turn:
        """Return what to open and close now; it counts as done.

        `others` conversations are open without having been listed; `use_of` is asked about
        open ones.
        """
        idle_s = self._policy.idle_s
        if not self._asked and not self._waiting and idle_s is None:
            return Turn()
        closed = [] if idle_s is None else self._close_idle(now, idle_s, use_of)
        opened = []
        if self._asked and (self._retry_at is None or now >= self._retry_at):
            opened = self._open_asked(now, others, use_of, closed)
        opened += self._open_waiting(now, others)
        return Turn(tuple(opened), tuple(closed))

    @property
    def wake_at(self) -> float | None:
        """Time to call `next` again, in seconds; None while nothing is due by itself."""
        due = [self._retry_at] if self._retry_at is not None and self._asked else []
        if self._policy.idle_s is not None and self.open:
            due.append(next(iter(self.open.used_at.values())) + self._policy.idle_s)
        return min(due, default=None)

    def _open_asked(
        self, now: float, others: int, use_of: UseOf, closed: list[ConversationId]
    ) -> list[ConversationId]:
        """Open what is asked for: one of each creator, and again while there is room."""
        opened: list[ConversationId] = []
        has_opened = True
        while has_opened and self._asked and len(self._opening) < OPENING_MAX:
            has_opened = False
            for creator in self._asked.creators(OPENING_MAX):
                if len(self._opening) >= OPENING_MAX:
                    break
                conversation = next(self._asked.of(creator))
                if conversation not in self.open and not self._make_room(
                    creator, now, others, use_of, closed
                ):
                    self._asked.move_back(creator)
                    continue
                self._asked.discard(creator, conversation)
                self._asked.move_back(creator)
                if self._begin(conversation, now):
                    opened.append(conversation)
                has_opened = True
        is_stuck = bool(self._asked) and len(self._opening) < OPENING_MAX
        self._retry_at = now + RETRY_S if is_stuck else None
        return opened

    def _make_room(
        self,
        creator: Creator,
        now: float,
        others: int,
        use_of: UseOf,
        closed: list[ConversationId],
    ) -> bool:
        """Close a conversation if one more of this creator needs its room; False if none can be."""
        policy = self._policy
        if self.open.count_of(creator) >= policy.per_creator_max:
            found = self.open.idlest_of(creator, now, use_of)
        elif len(self.open) + others >= policy.open_max:
            found = self.open.idlest(now, use_of)
        else:
            return True
        if found is not None:
            self.remove(found)
            closed.append(found)
        return found is not None

    def _open_waiting(self, now: float, others: int) -> list[ConversationId]:
        policy, opened = self._policy, list[ConversationId]()
        most = min(policy.unasked_max, policy.open_max - others)
        while self._waiting and len(self.open) < most and len(self._opening) < OPENING_MAX:
            conversation = next(iter(self._waiting))
            del self._waiting[conversation]
            creator = self._creator[conversation]
            has_room = self.open.count_of(creator) < policy.per_creator_max
            if has_room and self._begin(conversation, now):
                opened.append(conversation)
        return opened

    def _close_idle(self, now: float, idle_s: float, use_of: UseOf) -> list[ConversationId]:
        closed = list(self.open.close_idle(now, idle_s, use_of))
        self._opening.difference_update(closed)
        return closed

    def _begin(self, conversation: ConversationId, now: float) -> bool:
        self._waiting.pop(conversation, None)
        if conversation in self.open:
            return False
        self.open.add(conversation, self._creator[conversation], now)
        self._opening.add(conversation)
        return True

    # --- state --------------------------------------------------------------------------

    @property
    def listed(self) -> Set[ConversationId]:
        """The listed conversations, open or not, whose creators the policy admits."""
        return self._creator.keys()

    def may_open(self, conversation: ConversationId) -> bool:
        """Say whether a conversation is listed, and the policy admits its creator."""
        known = self._creator
        return conversation in known and self._policy.admits(conversation, known[conversation])

    def creator(self, conversation: ConversationId) -> PublicKey | None:
        """Return the creator of a listed conversation, if it is known."""
        return self._creator.get(conversation) or self._refused.get(conversation)

    def left_out(self) -> dict[LeftOut, int]:
        """Count the listed conversations that are not open, by the reason."""
        refused = sum(not self._policy.admits(*known) for known in self._creator.items())
        asked = len(self._asked)
        rest = len(self._creator) - len(self.open) - refused - asked
        return {
            LeftOut.CREATOR: refused + len(self._refused),
            LeftOut.NO_ROOM: asked,
            LeftOut.NOT_ASKED: max(0, rest),
        }
