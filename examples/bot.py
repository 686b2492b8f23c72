"""A bot that follows all conversations of its key and acknowledges what others say.

python examples/bot.py FOLDER HUB
"""

import sys

import antiphon


def main(folder: str, hub: str) -> None:
    """Reply to every message from another member, forever."""
    with antiphon.open(folder, hub=hub) as me:
        events = me.events()  # of all conversations, from now on
        print("key", me.key.hex(), flush=True)
        for event in events:
            match event:
                case antiphon.Said(who, text, _, conversation, is_system=False) if who != me.key:
                    me.get(conversation).say(f"Noted: {text}")
                    print("noted", text, flush=True)
                case antiphon.MemberChanged(who, role) if who == me.key:
                    print("member as", role, flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
