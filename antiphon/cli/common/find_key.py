"""A key named on the command line: by all its digits, by its first ones, or by its name."""

from collections.abc import Iterable, Mapping

from antiphon.cli.common.session import only_match
from replica.ids import KEY_BYTES, PublicKey, key_from_hex
from replica.refusals import ArgumentInvalid


def parse_key(text: str) -> PublicKey:
    """Read a public key of 64 hex digits. Raises ArgumentInvalid."""
    try:
        return key_from_hex(text)
    except ValueError as error:
        raise ArgumentInvalid(str(error)) from error


def find_key(
    text: str, known: Iterable[PublicKey], names: Mapping[PublicKey, str] | None = None
) -> PublicKey:
    """Return the key that `text` names; anything but 64 digits names one of `known`.

    Raises ArgumentInvalid, PrefixAmbiguous.
    """
    if len(text) == 2 * KEY_BYTES:
        return parse_key(text)
    among = list(known)
    named = [key for key in among if (names or {}).get(key) == text]
    if len(named) == 1:
        return named[0]
    return PublicKey(only_match(text, among, "key here", ArgumentInvalid))
