"""A folder with a log whose key file is gone."""

import pytest

import antiphon
from replica.io import keys
from tests.antiphon.library.conftest import Lab
from tests.support.forms import joined


async def test_no_other_identity_goes_on_in_a_folder_whose_key_is_gone(talking: Lab):
    async with talking.open() as me:
        mine, trip = me.key, await me.conversation("trip")
        await trip.ask("Capital?")
        code = await trip.invite("bob")
    folder = talking.folder / "me"
    path = folder / "identity.key"
    backup = keys.backup(path, "a long one")
    before = sorted(folder.rglob("*"))
    path.unlink()
    for opening in (talking.open(), joined(talking.form, code, folder)):
        with pytest.raises(antiphon.KeyFileInvalid, match="is gone") as gone:
            async with opening:
                pass
        assert "antiphon key restore FILE" in gone.value.next_step
    keys.restore(path, backup, "a long one")
    assert sorted(folder.rglob("*")) == before
    async with talking.open() as me:
        assert me.key == mine
        assert (await (await me.conversation("trip")).ask("Now?")).text == "You said: Now?"
