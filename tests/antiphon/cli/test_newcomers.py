"""What an inviter is told of a key that is not let in."""

import re

import pytest

from antiphon.cli.common.newcomers import newcomer_words
from replica.conversation import Invitation, Issued, JoinVerdict, check_verdict
from replica.errors import AntiphonError
from replica.ids import ConversationId, PublicKey
from replica.io import Joined
from replica.log import Role

REFUSED = [one for one in JoinVerdict if one not in (JoinVerdict.GRANTED, JoinVerdict.PENDING)]
INVITING, REMOVING = "antiphon invite NAME", "antiphon members remove NAME"


@pytest.mark.parametrize("verdict", REFUSED)
def test_a_refusal_names_the_key_that_tried_the_code_its_reason_and_a_step(
    verdict: JoinVerdict,
) -> None:
    """It said that the person for whom the code was made is refused."""
    words = newcomer_words(tried(verdict), INVITING, REMOVING)
    assert re.search(r"key c9c9c9c9c9c9.* tried the code of carl", words)
    assert "carl is refused" not in words
    with pytest.raises(AntiphonError) as told:
        check_verdict(verdict)
    assert f"and is not let in [{told.value.reason}]. next: " in words


def test_a_used_code_says_that_it_was_another_key_and_what_to_do_about_a_wrong_one() -> None:
    assert newcomer_words(tried(JoinVerdict.USED), INVITING, REMOVING) == (
        "another key c9c9c9c9c9c9 tried the code of carl, which was used already, and is not let in"
        " [INVITE_USED]. next: nothing; if somebody else joined as carl, antiphon members remove"
        " NAME, then antiphon invite NAME"
    )


def tried(verdict: JoinVerdict) -> Joined:
    """Return the verdict on a key that tried the code of carl."""
    key, conversation = PublicKey(b"\x01" * 32), ConversationId(b"\x02" * 32)
    made = Invitation("h:1", key, conversation, key, Role.WRITER, 1, bytes(16))
    return Joined(Issued(made, "carl", 0), PublicKey(b"\xc9" * 32), verdict)
