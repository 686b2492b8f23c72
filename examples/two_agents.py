"""Two agents in one conversation: their questions are queued, and both read all answers.

python examples/two_agents.py FOLDER HUB
"""

import asyncio
import sys
from pathlib import Path

import antiphon


async def main(folder: Path, hub: str) -> None:
    """Let two agents ask at the same time."""
    async with (
        antiphon.aio.open(folder / "ada", hub=hub) as ada,
        antiphon.aio.open(folder / "bob", hub=hub) as bob,
    ):
        hers = await ada.conversation("plan", system="Answer both agents.")
        await hers.grant(bob.key)
        await hers.sync()
        his = await bob.get(hers.id)
        await asyncio.gather(hers.ask("What comes first?"), his.ask("What comes last?"))
        await asyncio.gather(hers.sync(), his.sync())
        for event in await hers.history():
            match event:
                case antiphon.Said(who, text, is_system=False):
                    print({ada.key: "ada", bob.key: "bob"}[who], "said:", text)
                case antiphon.Answered(answer):
                    print("answer:", answer.text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
