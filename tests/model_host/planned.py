"""A conversation in which a host plans and answers, without a model."""

from random import Random

from model_host.generation import Plan, gather, plan
from model_host.profiles import Profile
from model_host.rendering import RECIPE_DIGEST, Contexts, Renderer
from replica.conversation.author import Author
from replica.conversation.conversation import Conversation
from replica.conversation.next_seal import Sealable, sealable
from replica.ids import ConversationId, Digest, EntryId
from replica.log.body import (
    FinishReason,
    Generation,
    Grant,
    Member,
    Message,
    Request,
    Role,
    Sampling,
    Speaker,
    Text,
    ToolDefinition,
    ToolResult,
    Tools,
)
from replica.log.entry import Conflict
from replica.order.tail import frontier
from tests.model_host.rendering.test_render import ENCODER, END, RENDERER, TEMPLATE
from tests.support.writers import Writer, said

PROFILE = Profile(
    "bytes", Digest(b"w" * 32), ENCODER.digest, TEMPLATE.digest, RECIPE_DIGEST,
    Digest(b"s" * 32), "fp32", 200, has_tools=False, grammar_engine="none",
)  # fmt: skip
ANY = Digest(bytes(32))


class Scene:
    """A conversation with an owner and a host."""

    def __init__(self) -> None:
        self.owner, host = Writer(1), Writer(2)
        self.host = Author(host.key, 5)
        self.genesis = self.owner.genesis()
        self.held = Conversation(ConversationId(self.genesis.id))
        self.held.admit(self.genesis)
        self.add(Member(Grant(self.host.public, Role.HOST)), [self.genesis])

    def add(self, body, parents, basis=None, conflict=Conflict.QUEUE):
        entry = self.owner.write(
            self.held.id, body, parents=parents, basis=basis, conflict=conflict
        )
        self.held.admit(entry)
        return entry

    def ask(self, text="hi", **request) -> EntryId:
        tips = self.held.order.tips()
        basis = self.held.log.entries[tips[-1].id] if tips else None
        parents = frontier(self.held.order, tips[-1] if tips else None)
        message = self.add(said(text), [self.held.log.entries[p] for p in parents], basis)
        body = Request(self.host.public, request.pop("sampling", Sampling()), **request)
        return self.add(body, [message], basis).id

    def ready(self, request: EntryId) -> Sealable:
        ready = sealable(self.held, request)
        assert ready is not None
        return ready

    def plan(
        self, request: EntryId, renderer: Renderer = RENDERER, contexts: Contexts | None = None
    ) -> Plan:
        return self.plan_of(self.ready(request), renderer, contexts)

    def plan_of(
        self,
        ready: Sealable,
        renderer: Renderer = RENDERER,
        contexts: Contexts | None = None,
        profile: Profile = PROFILE,
    ) -> Plan:
        gathered = gather(self.held, ready, contexts or Contexts(0))
        return plan(gathered, profile=profile, renderer=renderer)

    def answer(self, request: EntryId, body: Generation) -> EntryId:
        """Seal a request and answer it; return the answer."""
        seal_id = self.host_writes(self.plan(request).seal, request)
        return self.host_writes(body, seal_id)

    def add_behind(self, body, entry_id: EntryId):
        """Add an entry that follows another, on the newest branch."""
        entries, (*_, tip) = self.held.log.entries, self.held.order.tips()
        return self.add(body, [entries[entry_id]], entries[tip.id])

    def random_turn(self, walk: Random) -> Sealable:
        """Ask in one of many ways: a new turn, a continuation, another branch, with tools."""
        nodes = list(self.held.order.nodes.values())
        tips = self.held.order.tips()
        node = walk.choice(nodes) if nodes and walk.random() < 0.3 else tips[-1] if tips else None
        entries = self.held.log.entries
        basis = entries[node.id] if node is not None else None
        last = [entries[i] for i in frontier(self.held.order, node)]
        for speaker in walk.choices([*Speaker, None], k=walk.randrange(4)):
            text = walk.choice(["", "a", "héllo"])
            tools = Tools(tuple(ToolDefinition(name, text, "{}") for name in text[:2]))
            result = ToolResult(walk.choice(["1", "2"]), (Text(text),))
            body = Message(Speaker.TOOL, (result,)) if speaker == Speaker.TOOL else None
            body = body or (said(text, speaker) if speaker is not None else tools)
            last = [self.add(body, last, basis)]
        conflict = Conflict.QUEUE if node in tips else Conflict.FORK
        request = self.add(Request(self.host.public, Sampling()), last, basis, conflict)
        return self.ready(request.id)

    def answer_at_random(self, walk: Random, planned: Plan, contexts: Contexts) -> None:
        """Seal a planned request, and answer it to its end or less far."""
        seal_id = self.host_writes(planned.seal, planned.request_id)
        contexts.keep(seal_id, planned.context)
        finish = walk.choice([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CANCELLED])
        ids = tuple(walk.choices(range(97, 123), k=walk.randrange(4)))
        if finish is FinishReason.STOP:
            ids = (*ids, END)
        parts = (Text("x"),) if ids else ()
        self.host_writes(Generation(ids, parts, len(parts), finish), seal_id)

    def refuse(self, request: EntryId) -> EntryId:
        """Refuse a request before its seal; return the refusal."""
        parent = self.held.log.entries[request]
        body = Generation((), (), 0, FinishReason.REFUSED)
        entry = self.host.write(self.held, body, parents=(parent.id,), salt=bytes(16), time_ms=1)
        self.held.admit(entry)
        return entry.id

    def host_writes(self, body, parent: EntryId, author: Author | None = None) -> EntryId:
        entry = (author or self.host).write(
            self.held, body, parents=(parent,), salt=bytes(16), time_ms=1,
            basis=parent if isinstance(body, Generation) else body.prev_seal,
        )  # fmt: skip
        self.held.admit(entry)
        return entry.id
