"""Write the replay suite: recorded conversations with the default model, one for each numerics.

    python -m bench.make_replays antiphon/conformance/suites/replay q4 bf16

A real host answers. Its tokens are recorded in entries whose keys, salts and times follow
from the recording's name, so that the same tokens give the same bytes.
"""

import asyncio
import json
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from antiphon.conformance.suites.recording import Json, Recorder
from bench.talk import GREEDY, Talk
from model_host.generation import gather, plan
from model_host.io.config import HostConfig
from model_host.io.profiles.offers import Offer
from model_host.io.server import HostServer
from model_host.io.server import start as start_host
from model_host.rendering import Contexts
from replica.conversation import extend_digest, sealable, start_digest
from replica.ids import EntryId
from replica.io import Replica
from replica.log import Conflict, Generation, Message, Request, Role, Sampling, Speaker, Text, Usage
from replica.order import frontier
from syncd.io.config import HubConfig
from syncd.io.server import start as start_hub

TITLE = "Replay answers that were sampled, stopped, continued, and asked for twice."
REQUIREMENTS = (
    "HOST-4", "HOST-5", "HOST-6", "HOST-7", "HOST-10", "HOST-11", "HOST-20", "HOST-73",
    "HOST-74", "HOST-75", "HOST-79",
)  # fmt: skip
SEEDED = Sampling(temperature=0.9, top_p=0.95, seed=11)
PENALISED = Sampling(temperature=1.1, top_k=40, repetition_penalty=1.2, seed=5)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request; without `text` it goes on, or asks again for the answer of `again`."""

    label: str
    sampling: Sampling
    tokens: int
    text: str = ""
    stop: tuple[str, ...] = ()
    again: str = ""


TURNS = (
    Turn("capital", GREEDY, 12, "What is the capital of France?"),
    Turn("rivers", SEEDED, 12, "Tell me about rivers."),
    Turn("rivers-on", SEEDED, 8),
    Turn("colour", PENALISED, 16, "Name a colour: é 中 🎨.", stop=(" the", "sea")),
    Turn("rivers-again", PENALISED, 10, again="rivers"),
)


class Recording:
    """Records what a host answers."""

    def __init__(self, name: str, offer: Offer) -> None:
        """Begin with a system message."""
        self._recorder = Recorder(0, name)
        self._offer = offer
        self._held = self._recorder.begin(hal=Role.HOST)
        self._contexts = Contexts()
        self._answers: list[Json] = []
        self._write("system", Message(Speaker.SYSTEM, (Text("Answer in one sentence."),)))

    def _write(self, label: str, body: Message | Request) -> None:
        order = self._recorder.held(self._held).order
        tips = order.tips()
        tip = tips[-1] if tips else None
        parents = [self._label(i) for i in frontier(order, tip)]
        basis = self._label(tip.id) if tip is not None else None
        r = self._recorder
        self._held.append(r.write(label, "ada", body, self._held, parents, basis=basis))

    def _label(self, entry: EntryId) -> str:
        return next(one for one, e in self._recorder.entries.items() if e.id == entry)

    def add(self, turn: Turn, answer: Generation) -> None:
        """Record a turn and its answer."""
        r, ask = self._recorder, f"{turn.label}-request"
        body = Request(
            r.public("hal"), turn.sampling, output_tokens_max=turn.tokens, stop=turn.stop
        )
        if turn.text:
            self._write(turn.label, Message(Speaker.USER, (Text(turn.text),)))
        if turn.again:
            first = r.entries[f"{turn.again}-request"].header
            parents = [self._label(i) for i in first.parents]
            basis = self._label(first.basis) if first.basis is not None else None
            r.write(ask, "ada", body, self._held, parents, basis=basis, conflict=Conflict.FORK)
            self._held.append(ask)
        else:
            self._write(ask, body)
        self._answer(turn.label, ask, answer)

    def _answer(self, label: str, ask: str, answer: Generation) -> None:
        r, held = self._recorder, self._recorder.held(self._held)
        request = r.entries[ask].id
        ready = sealable(held, request)
        assert ready is not None, "its turn is now"
        gathered = gather(held, ready, self._contexts)
        made = plan(gathered, profile=self._offer.profile, renderer=self._offer.renderer)
        seal = r.write(f"{label}-seal", "hal", made.seal, self._held, [ask])
        self._held.append(seal)
        run, prompt = len(self._answers) + 1, len(made.context.ids)
        recorded = replace(
            answer,
            usage=Usage(prompt, prefilled_tokens=prompt, output_tokens=len(answer.token_ids)),
            run=run,
            draft_digest=extend_digest(start_digest(request, run), answer.token_ids),
        )
        done = r.write(f"{label}-answer", "hal", recorded, self._held, [seal], basis=seal)
        self._held.append(done)
        context = r.held(self._held).order.context(r.entries[seal].id)
        self._answers.append(
            {
                "answer": done,
                "seal": seal,
                "context": [self._label(entry.id) for entry in context],
                "render_digest": made.seal.render_digest.hex(),
                "prompt_tokens": prompt,
                "token_ids": list(answer.token_ids),
            }
        )

    def content(self, numerics_class: bytes) -> Json:
        """Return the content of the file."""
        profile = self._offer.profile
        return {
            **self._recorder.content(TITLE, REQUIREMENTS),
            "model": profile.name,
            "numerics": profile.numerics,
            "numerics_class": numerics_class.hex(),
            "tokenizer_digest": profile.tokenizer_digest.hex(),
            "template_digest": profile.template_digest.hex(),
            "render_recipe_digest": profile.render_recipe_digest.hex(),
            "answers": self._answers,
        }


async def record(name: str, replica: Replica, host: HostServer) -> Json:
    """Ask a host in a conversation of its own, and record its answers."""
    recording, talk = Recording(name, host.offer), await Talk.begin(replica, host.key)
    await talk.say("Answer in one sentence.", Speaker.SYSTEM)
    asked: dict[str, EntryId] = {}
    for turn in TURNS:
        if turn.again:
            asked[turn.label] = await talk.regenerate(
                asked[turn.again],
                sampling=turn.sampling,
                output_tokens_max=turn.tokens,
                stop=turn.stop,
            )
        else:
            if turn.text:
                await talk.say(turn.text)
            asked[turn.label] = await talk.request(
                sampling=turn.sampling, tokens=turn.tokens, stop=turn.stop
            )
        recording.add(turn, await talk.answer(asked[turn.label]))
    return recording.content(host.thread.engine.numerics_class)


async def _main(folder: Path, numerics: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        hub = await start_hub(HubConfig(data_dir=Path(scratch) / "hub", listen="127.0.0.1:0"))
        config = HostConfig(data_dir=Path(scratch) / "host", hub=hub.address, numerics=numerics)
        path = Path(scratch) / "replica" / "log.db"
        async with (
            start_host(config) as host,
            Replica.open(path, Ed25519PrivateKey.generate(), hub.address) as replica,
        ):
            content = await record(f"smollm2-{numerics}", replica, host)
        await hub.stop()
    target = folder / f"{content['name']}.json"
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of the suite")
    parser.add_argument("numerics", nargs="+", help="numerics to record with: q4, bf16, fp32")
    options = parser.parse_args()
    for each in options.numerics:
        asyncio.run(_main(options.folder, each))
