"""Our client as one under test, by the commands of spec/conform-client.md."""

import asyncio
import json
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.suites.recording import Json
from replica.conversation import newest_place
from replica.errors import AntiphonError
from replica.ids import ConversationId, Digest, EntryId, PublicKey
from replica.io import BlobCalls, Replica, begin, documents, log_to_stderr
from replica.log import Body, Grant, Message, Request, Role, Sampling, Speaker, Text, text_of


class Adapter:
    """A replica that does what the commands say."""

    def __init__(self) -> None:
        """Start without a replica; `connect` comes first."""
        self._folder = tempfile.TemporaryDirectory()
        self._stores = 0
        self._open = AsyncExitStack()
        self.replica: Replica

    async def answer(self, command: Json) -> Json:
        """Perform a command; return its answer, `unknown` where there is none."""
        perform = getattr(self, f"_{command['do']}", None)
        if perform is None:
            return {"unknown": True}
        try:
            return await perform(command) or {}
        except AntiphonError as error:
            return {"error": error.reason}

    async def close(self) -> None:
        """Close the replica, and remove its stores."""
        await self._open.aclose()
        self._folder.cleanup()

    async def _connect(self, command: Json) -> None:
        await self._open.aclose()
        self._stores += not command.get("keep")
        path = Path(self._folder.name) / str(self._stores) / "log.db"
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(command["key"]))
        self.replica = await self._open.enter_async_context(
            Replica.open(path, key, command["address"])
        )

    async def _follow(self, command: Json) -> None:
        await self.replica.follow(_id(command))

    async def _append(self, command: Json) -> Json:
        return await self._write(command, Message(Speaker.USER, (Text(command["text"]),)))

    async def _ask(self, command: Json) -> Json:
        host = PublicKey(bytes.fromhex(command["host"]))
        return await self._write(command, Request(host, Sampling()))

    async def _edit(self, command: Json) -> Json:
        conversation, key, value = _id(command), command["key"], command["value"]
        await documents.edit(self.replica, conversation, lambda one: one.set_meta(key, value))
        (last,) = (await self.replica.load(conversation)).document.heads
        return {"id": last.hex()}

    async def _begin(self, _command: Json) -> Json:
        choice = await begin.choose_host_to_grant(self.replica, None, None)
        grants = [Grant(choice.key, Role.HOST)]
        created = await begin.begin(self.replica, None, grants, None)
        return {"conversation": created.hex()}

    async def _read(self, command: Json) -> Json:
        digest, calls = bytes.fromhex(command["digest"]), BlobCalls(self.replica.calls())
        parts = [part async for part in calls.read(_id(command), Digest(digest))]
        return {"data": b"".join(parts).hex()}

    async def _write(self, command: Json, body: Body) -> Json:
        held = await self.replica.load(_id(command))
        at = newest_place(held)
        entry = await self.replica.append(held.id, body, parents=at.parents, basis=at.basis)
        return {"id": entry.id.hex()}

    async def _status(self, command: Json) -> Json:
        conversation, hub = _id(command), self.replica.hub
        refusal = hub.refusal(conversation)
        error = hub.last_error.reason if hub.last_error is not None else None
        stated: Json = {
            "linked": hub.is_linked,
            "synchronized": hub.is_in_sync(conversation),
            "error": refusal.reason if refusal is not None else error,
        }
        held = self.replica.shelf.get(conversation)
        if held is None:
            return {**stated, "digest": None, "unacked": 0, "drafted": "", "answer": None}
        request = EntryId(bytes.fromhex(command.get("request", "")))
        draft, answer = held.drafts.get(request), held.order.answer(request)
        return {
            **stated,
            "digest": held.log.digest.hex(),
            "unacked": hub.unsynced(conversation),
            "drafted": draft.data.decode(errors="replace") if draft is not None else "",
            "answer": text_of(answer.parts) if answer is not None else None,
        }


def _id(command: Json) -> ConversationId:
    return ConversationId(bytes.fromhex(command["conversation"]))


async def _main() -> None:
    log_to_stderr()  # stdout has the answers
    adapter = Adapter()
    try:
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            answer = {"number": command["number"], **await adapter.answer(command)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        await adapter.close()


if __name__ == "__main__":
    asyncio.run(_main())
