"""A body as the log gives it back: what can't be written is refused before it is."""

from replica.ids import SALT_BYTES
from replica.limits import BODY_BYTES_MAX
from replica.log import codec
from replica.log.body import Body
from replica.log.entry import salted
from replica.log.kinds import kind_of
from replica.refusals import BodyTooLarge


def read_back(body: Body) -> Body | None:
    """Return a body as it is read once it was written. Raises BodyMalformed, BodyTooLarge.

    Fields of other types than they should have raise the errors of the encoder.
    """
    written = salted(bytes(SALT_BYTES), codec.encode_body(body))
    if len(written) > BODY_BYTES_MAX:
        raise BodyTooLarge(f"the body would have {len(written):,} bytes, of {BODY_BYTES_MAX:,}")
    return codec.decode_body(kind_of(body), written)
