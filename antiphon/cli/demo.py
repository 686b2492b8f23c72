"""The demo: a real model, real crashes and deletions, and the recovery from each.

    python -m antiphon.cli.demo [--json]

It uses temporary folders and free ports, and removes everything at the end. Each
step demonstrates and checks one guarantee; the exit code is 1 if one failed. With
--json the output goes to stderr, and the last line of stdout is one JSON object.
"""

import argparse
import asyncio
import json
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

from antiphon.cli.commands import fetch_model
from antiphon.cli.demo_output import DemoOutput, bytes_words
from antiphon.cli.main import set_log_level
from antiphon.cli.relay import Relay
from antiphon.daemons import Supervisor
from replica.conversation import Place, newest_place, place_at
from replica.errors import AntiphonError
from replica.ids import ConversationId, EntryId, short
from replica.io import (
    HostCalls,
    Replica,
    RequestOptions,
    answers,
    begin,
    load_or_create,
    python,
    turns,
)
from replica.log import Genesis, Grant, Message, Request, Role, Sampling, Text, public_key

MODEL = "SmolLM2-135M-Instruct"
SYSTEM = "You are a helpful assistant."
QUESTIONS = (
    "What is the capital of France?",
    "Name one famous building there.",
    "What can visitors see from its top?",
)
FOURTH = "Which river flows through the city?"
OFFLINE_A = "Which museum should I visit?"
OFFLINE_B = "What should I eat for breakfast?"
SAMPLING = Sampling(temperature=0.3, top_p=0.9, seed=7)
OUTPUT_TOKENS_MAX = 48
PAGE_TOKENS = 16
"""The unit of checkpoints: at most one page is computed again."""
WAIT_S = 120.0


class Demo:
    """The steps, in order; each one uses the state after the one before."""

    def __init__(self, folder: Path, out: DemoOutput) -> None:
        """Keep everything under `folder`."""
        self.folder = folder
        self.out = out
        self.daemons = Supervisor(folder, models=(MODEL,), report=out.say)
        self.relay: Relay
        self.conversation: ConversationId
        self.wire_bytes: list[int] = []
        """One number per turn, in the order of the turns."""

    async def play(self) -> None:
        """Run all steps."""
        self.out.say("starting a hub and a model host …")
        async with self.daemons, Relay(self.daemons.hub.ready.address) as self.relay:
            async with self._replica("a", self.relay) as replica:
                await self.step_1_talk(replica)
                fourth = await self.step_2_kill(replica)
                await self.step_3_forget(replica, fourth)
                await self.step_4_reseed(replica)
            await self.step_5_queue()
            self.out.result["turns"] = len(self.wire_bytes)
            self.out.result["wire_bytes_per_turn"] = self.wire_bytes

    def _replica(self, name: str, relay: Relay | None) -> AbstractAsyncContextManager[Replica]:
        """Open a replica, linked through a relay that counts; without one, offline."""
        folder = self.folder / name
        address = relay.address if relay is not None else None
        key = load_or_create(folder / "identity.key")
        return Replica.open(folder / "log" / "log.db", key, address)

    # --- steps -------------------------------------------------------------

    async def step_1_talk(self, replica: Replica) -> None:
        """Hold a conversation of three turns."""
        self.out.begin_step(1, "A conversation of three turns")
        host = self.daemons.host.ready.key
        other = public_key(load_or_create(self.folder / "b" / "identity.key"))
        created = await replica.create(Genesis((replica.public,), SAMPLING))
        self.conversation = created
        for grant in (Grant(host, Role.HOST), Grant(other, Role.WRITER)):
            await begin.grant(replica, created, grant)
        await turns.say_as_system(replica, created, SYSTEM, newest_place(replica.shelf[created]))
        await replica.wait_synced(created, WAIT_S)
        for question in QUESTIONS:
            await self._turn(replica, question)
        sizes = bytes_words(self.wire_bytes)
        self.out.say(f"each turn on the wire, both ways, drafts included: {sizes}")

    async def step_2_kill(self, replica: Replica) -> answers.Finished:
        """Kill both daemons; the fourth turn restores the KV cache of the first three."""
        self.out.begin_step(2, "Both daemons killed, the KV cache restored from its checkpoint")
        tokens = await self._wait_for_checkpoint(replica)
        self.out.say(f"a checkpoint of {tokens} tokens is durable")
        for daemon in (self.daemons.hub, self.daemons.host):
            self.out.say(f"$ kill -9 {daemon.pid}    # the {daemon.name}")
            await daemon.kill()
        await self._start("hub", "host")
        await self._relinked(replica)
        finished = await self._turn(replica, FOURTH)
        usage = finished.generation.usage
        new = self._new_tokens(replica, finished)
        restored, computed = usage.restored_tokens, usage.prefilled_tokens
        self.out.say(f"{restored} tokens restored, {computed} recomputed ({new} are new)")
        self.out.result["restored_tokens"] = restored
        self.out.result["recomputed_tokens"] = computed
        self.out.result["new_tokens"] = new
        self.out.result["ttft_restored_s"] = usage.first_token_us / 1e6
        self.out.check(
            "a checkpoint survives kill -9",
            restored > 0 and computed <= PAGE_TOKENS + new,
            f"{restored} restored, {computed} computed, {new} new",
        )
        return finished

    async def step_3_forget(self, replica: Replica, fourth: answers.Finished) -> None:
        """Delete the host's derived state; recompute the same tokens from the log."""
        self.out.begin_step(
            3, "The host's checkpoints deleted, everything computed from the log again"
        )
        await self.daemons.host.stop()
        derived = self.daemons.data_dir / "host" / "derived"
        self.out.say(f"$ rm -r {derived}")
        shutil.rmtree(derived)
        await self._start("host")
        held = replica.shelf[self.conversation]
        request = held.log.entries[self._request_of(replica, fourth)]
        body = held.log.body(request.id)
        assert isinstance(body, Request), "an answer belongs to a request"
        place = place_at(held, request.header.parents[0])
        options = RequestOptions(body.host, body.sampling, body.output_tokens_max)
        self.out.say("the same question to the same context, with the same seed:")
        again = await self._turn(replica, None, place=place, options=options)
        usage = again.generation.usage
        equal = again.generation.token_ids == fourth.generation.token_ids
        self.out.say(f"{usage.prefilled_tokens} tokens computed from the log, none restored")
        self.out.say(f"first answer  {_ids(fourth)}\nsecond answer {_ids(again)}")
        self.out.result["replay_equal"] = equal
        self.out.result["ttft_reprefill_s"] = usage.first_token_us / 1e6
        self.out.check(
            "the log alone gives the same tokens",
            equal and usage.restored_tokens == 0 and usage.cached_tokens == 0,
            f"{len(again.generation.token_ids)} tokens, bit for bit",
        )

    async def step_4_reseed(self, replica: Replica) -> None:
        """Delete the hub's log; the user's replica restores it."""
        self.out.begin_step(4, "The hub's log deleted, given back by the client's replica")
        # The host is a replica too; it stays stopped, so that only the user's replica has the log.
        await self.daemons.host.stop()
        await self.daemons.hub.stop()
        store = self.daemons.data_dir / "hub" / "log"
        self.out.say(f"$ rm -r {store}")
        shutil.rmtree(store)
        await self._start("hub")
        await self._relinked(replica)
        async with self._replica("b", self.relay) as fresh:
            await fresh.follow(self.conversation)
            await fresh.wait_synced(self.conversation, WAIT_S)
            held = await fresh.load(self.conversation)
            ours, theirs = replica.shelf[self.conversation].log.digest, held.log.digest
            self.out.say("our replica's digest, and that of an empty one the hub has filled:")
            self.out.say(f"{ours.hex()}\n{theirs.hex()}")
        equal = ours == theirs
        self.out.result["hub_reseeded"] = equal
        self.out.check("a replica gives the hub its log back", equal, f"{len(held.log)} entries")

    async def step_5_queue(self) -> None:
        """Write on two replicas offline; the later turn is queued behind the earlier answer."""
        self.out.begin_step(5, "Two replicas write offline, and meet again")
        starting = asyncio.create_task(self._start("host"))
        requests = {}
        for name, text in (("a", OFFLINE_A), ("b", OFFLINE_B)):
            async with self._replica(name, None) as replica:
                requests[name] = await self._write_offline(replica, name, text)
        await starting
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            relays = [await enter(Relay(self.daemons.hub.ready.address)) for _ in requests]
            a, b = [
                await enter(self._replica(name, relay))
                for name, relay in zip(requests, relays, strict=True)
            ]
            await self._sync_both(a, b, tuple(requests.values()))
            sizes = [relay.bytes_total for relay in relays]
            self.wire_bytes += sizes
            self.out.say(f"each replica, its link and the other's turn too: {bytes_words(sizes)}")
            self._compare(a, b, tuple(requests.values()))
            await self._show_graph()

    async def _sync_both(self, a: Replica, b: Replica, requests: tuple[EntryId, ...]) -> None:
        """Wait until both replicas hold both answers."""
        for replica in (a, b):
            await replica.follow(self.conversation)
        await a.wait_for(lambda: self._all_answered(a, requests), WAIT_S)
        await b.wait_for(lambda: self._all_answered(b, requests), WAIT_S)
        for replica in (a, b):
            await replica.wait_synced(self.conversation, WAIT_S)

    def _compare(self, a: Replica, b: Replica, requests: tuple[EntryId, ...]) -> None:
        order = a.shelf[self.conversation].order
        first, last = sorted(
            (order.nodes[order.seal_of[request]] for request in requests), key=lambda n: n.depth
        )
        seen = {entry.id for entry in order.context(last.id)}
        in_line = first.generation in seen and seen.issuperset(requests)
        digests = [c.shelf[self.conversation].log.digest for c in (a, b)]
        for name, digest in zip("ab", digests, strict=True):
            self.out.say(f"replica {name}  {digest.hex()}")
        self.out.result["offline_turns_in_one_context"] = in_line
        self.out.result["branches"] = len(order.tips())
        self.out.result["digests_equal"] = digests[0] == digests[1]
        self.out.check("two offline turns follow one another", in_line, "no words left out")
        self.out.check("both replicas hold the same", digests[0] == digests[1], "equal digests")

    # --- parts of steps ---------------------------------------------------

    async def _turn(
        self,
        replica: Replica,
        text: str | None,
        *,
        place: Place | None = None,
        options: RequestOptions | None = None,
    ) -> answers.Finished:
        held = replica.shelf[self.conversation]
        place = place or newest_place(held)
        options = options or RequestOptions(
            self.daemons.host.ready.key, SAMPLING, OUTPUT_TOKENS_MAX
        )
        self.out.question(text)
        before = self.relay.bytes_total
        finished: answers.Finished | None = None
        async for event in turns.ask(
            replica, self.conversation, text, place, options, silence_max_s=WAIT_S
        ):
            self.out.answer(event)
            if isinstance(event, answers.Finished):
                turns.raise_if_refused(event.generation)
                finished = event
        assert finished is not None, "a followed answer ends with Finished"
        await replica.wait_synced(self.conversation, WAIT_S)
        self.wire_bytes.append(self.relay.bytes_total - before)
        return finished

    async def _wait_for_checkpoint(self, replica: Replica) -> int:
        """Wait until the last generation's checkpoint is on disk; return its tokens."""
        order = replica.shelf[self.conversation].order
        last = order.tips()[-1].generation
        ready = self.daemons.host.ready
        calls = HostCalls(ready.address, replica.key, ready.key)
        async with calls, asyncio.timeout(WAIT_S):
            while True:
                for found in await calls.list_checkpoints(self.conversation):
                    if found.generation == last:
                        return found.tokens
                await asyncio.sleep(0.1)

    async def _start(self, *names: str) -> None:
        for name in names:
            daemon = {"hub": self.daemons.hub, "host": self.daemons.host}[name]
            ready = await daemon.start()
            self.out.say(f"the {name} is back at {ready.address}, pid {daemon.pid}")

    async def _relinked(self, replica: Replica) -> None:
        """Wait until the link is up again and the hub holds all entries."""
        await replica.wait_for(lambda: replica.hub.is_linked, WAIT_S)
        await replica.wait_synced(self.conversation, WAIT_S)

    async def _write_offline(self, replica: Replica, name: str, text: str) -> EntryId:
        held = await replica.load(self.conversation)
        place = newest_place(held)
        options = RequestOptions(self.daemons.host.ready.key, SAMPLING, OUTPUT_TOKENS_MAX)
        asked = await turns.say_and_request(replica, held.id, (Text(text),), place, options)
        self.out.say(f"replica {name}, offline: {text}")
        return asked.request

    def _all_answered(self, replica: Replica, requests: Sequence[EntryId]) -> bool:
        held = replica.shelf.get(self.conversation)
        return held is not None and all(held.order.generation_of(r) for r in requests)

    def _request_of(self, replica: Replica, finished: answers.Finished) -> EntryId:
        held = replica.shelf[self.conversation]
        seal = held.log.entries[finished.id].header.parents[0]
        return held.order.nodes[seal].seal.request

    def _new_tokens(self, replica: Replica, finished: answers.Finished) -> int:
        """Count the new prompt tokens of a turn: those of its message and its request."""
        held = replica.shelf[self.conversation]
        seal = held.order.nodes[held.log.entries[finished.id].header.parents[0]].seal
        listed = zip(seal.entries, seal.tokens_per_entry, strict=True)
        return sum(n for i, n in listed if isinstance(held.log.body(i), Message | Request))

    async def _show_graph(self) -> None:
        """Run the real command while the replica is open."""
        argv = python("-m", "antiphon.cli.main", "log", "--graph")
        self.out.say(f"$ antiphon log --graph {short(self.conversation)}")
        process = await asyncio.create_subprocess_exec(
            *argv, self.conversation.hex(), "--data-dir", str(self.folder / "a"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        output, _ = await process.communicate()
        self.out.verbatim(output.decode())
        self.out.check("the graph can be drawn", process.returncode == 0, "antiphon log --graph")


def _ids(finished: answers.Finished) -> str:
    ids = finished.generation.token_ids
    shown = " ".join(map(str, ids[:10]))
    return f"{shown} … ({len(ids)} ids)"


async def play(out: DemoOutput) -> None:
    """Fetch the model, run all steps in a temporary folder, and clean up."""
    task = asyncio.current_task()
    assert task is not None, "play runs in a task"
    # On SIGTERM, the demo still stops its daemons and removes its folder.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await fetch_model(MODEL)
    folder = Path(tempfile.mkdtemp(prefix="antiphon-demo-"))
    try:
        await Demo(folder, out).play()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo, print the summary, and return 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="python -m antiphon.cli.demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="results as JSON, last on stdout")
    given = parser.parse_args(arguments)
    set_log_level(logging.CRITICAL)
    out = DemoOutput(as_json=given.json)
    try:
        asyncio.run(play(out))
    except AntiphonError as error:
        out.fail(error)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    out.summarize()
    if given.json:
        sys.stdout.write(json.dumps(out.result) + "\n")
    return 0 if out.is_success else 1


if __name__ == "__main__":
    sys.exit(main())
