"""What an inviter is told of the keys that try a code."""

from replica.conversation import JoinVerdict, check_verdict
from replica.errors import AntiphonError
from replica.ids import short
from replica.io import Joined


def newcomer_words(joined: Joined, inviting: str, removing: str) -> str:
    """Return what became of a key that tried a code, as one line.

    `inviting` and `removing` are the commands that make another code, and that remove a member.
    """
    invitation, name = joined.issued.invitation, joined.issued.name
    match joined.verdict:
        case JoinVerdict.GRANTED:
            role, where = invitation.role.name.lower(), short(invitation.conversation)
            return f"{name} has joined {where} as {role}, key {joined.key.hex()}"
        case JoinVerdict.PENDING:
            waits = f"{name} waits for the hub to be in sync"
            return f"{waits} [JOIN_PENDING], key {joined.key.hex()}"
        case _:
            return _refusal_words(joined, inviting, removing)


def _refusal_words(joined: Joined, inviting: str, removing: str) -> str:
    """Return that a key is not let in, with the next step.

    It is not known whose key it is: the name is that of the person for whom the code was made.
    """
    name = joined.issued.name
    key, code = f"key {short(joined.key)}", f"the code of {name}"
    match joined.verdict:
        case JoinVerdict.USED:
            tried = f"another {key} tried {code}, which was used already,"
            step = f"nothing; if somebody else joined as {name}, {removing}, then {inviting}"
        case JoinVerdict.REMOVED:
            tried = f"{key}, which was removed from the conversation, tried {code}"
            step = f"{name} joins with a new key, in another folder; the code stays valid"
        case verdict:
            became = "has expired" if verdict is JoinVerdict.EXPIRED else "is revoked"
            tried, step = f"{key} tried {code}, which {became},", f"if it is {name}'s, {inviting}"
    return f"{tried} and is not let in [{_reason(joined.verdict)}]. next: {step}"


def _reason(verdict: JoinVerdict) -> str:
    """Return the reason that whoever has the key is told."""
    try:
        check_verdict(verdict)
    except AntiphonError as error:
        return error.reason
    raise AssertionError("a key that is let in is not refused")
