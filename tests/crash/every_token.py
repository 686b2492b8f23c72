"""kill -9 of a host after each token of an answer, with other answers running.

In the long form, 256 tokens: python -m tests.crash.every_token
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from antiphon.daemons import Daemon
from replica.ids import EntryId
from replica.io.driver.replica import Replica
from replica.log.body import Generation, Sampling, text_of
from tests.crash.daemons import host_daemon, hub_daemon
from tests.support.talk import Talk, key_of

TOPICS = ("sea", "forest", "desert", "city", "river")
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Killed:
    """The outcome of one run: kills of the host, and the answers of all its readers."""

    kills: int
    answers: tuple[Generation, ...]
    shown: tuple[str, ...]
    """The text that each reader saw, as its drafts gave it."""
    again: tuple[Generation, ...]
    """The same requests answered once more, without a kill."""

    def check(self) -> None:
        """Assert that each reader saw one uninterrupted, correct answer.

        The last tokens may come with the answer alone: a draft is dropped where its seal is
        not acked yet, or where the answer comes sooner.
        """
        for answer, shown, again in zip(self.answers, self.shown, self.again, strict=True):
            text = text_of(answer.parts)
            assert text.startswith(shown), f"a reader saw another text: {shown!r}, not {text!r}"
            assert answer.token_ids == again.token_ids, "a kill changed an answer"
            assert answer.finish_reason == again.finish_reason


async def kill_at_every_token(folder: Path, tokens: int) -> Killed:
    """Kill a host whenever the first of five answers has a new token, until all have ended.

    `tokens` is the length of each answer. Readers check that their drafts go on where they
    ended (tests/support/talk.py).
    """
    hub = hub_daemon(folder)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(hub.kill)
        address = (await hub.start()).address
        host = host_daemon(folder, address)
        stack.push_async_callback(host.kill)
        key = (await host.start()).key
        talks = [
            await Talk.begin(await stack.enter_async_context(_replica(folder, at, address)), key)
            for at in range(len(TOPICS))
        ]
        # The answer that is watched is asked for last, so that the others run beside it.
        others = [await _ask(talk, at, tokens) for at, talk in enumerate(talks) if at > 0]
        requests = [await _ask(talks[0], 0, tokens), *others]
        kills = await _kill_until_answered(host, talks[0], requests[0])
        pairs = list(zip(talks, requests, strict=True))
        answers = [await talk.answer(request) for talk, request in pairs]
        shown = [talk.shown(request) for talk, request in pairs]
        again = [await talk.answer(await talk.regenerate(request)) for talk, request in pairs]
        return Killed(kills, tuple(answers), tuple(shown), tuple(again))


def _replica(folder: Path, at: int, address: str):
    return Replica.open(folder / f"replica{at}" / "log.db", key_of(at + 1), address)


async def _ask(talk: Talk, at: int, tokens: int) -> EntryId:
    await talk.say(f"Write a long story about the {TOPICS[at]}.")
    sampling = Sampling(temperature=0.9, seed=at + 1)
    return await talk.request(sampling=sampling, tokens=tokens, output_tokens_min=tokens)


async def _kill_until_answered(host: Daemon, talk: Talk, request: EntryId) -> int:
    kills, seen = 0, 0

    def is_further() -> bool:
        return len(talk.tokens(request)) > seen or talk.held.order.answer(request) is not None

    while talk.held.order.answer(request) is None:
        assert await talk.replica.wait_for(is_further, WAIT_S), f"no token after {kills} kills"
        await host.kill()
        kills, seen = kills + 1, len(talk.tokens(request))
        await host.start()
    return kills


def main(argv: Sequence[str] | None = None) -> int:
    """Run once, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each answer")
    flags = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        killed = asyncio.run(kill_at_every_token(Path(folder), flags.tokens))
    killed.check()
    print(f"{killed.kills} kills, {len(killed.answers)} answers of {flags.tokens} tokens: equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
