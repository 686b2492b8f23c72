"""Objects that stay in the process of their replica: pickling one says what to do instead."""

from typing import Any, NoReturn, Self

_ADVICE = {
    "Replica": "open its folder in the other process",
    "Run": "open the folder in the other process, and run it there again under its `key`",
}
_HANDLE = (
    "open the folder in the other process, and get it there by its id: me.get(conversation.id)"
)


class Unpickled:
    """The base of what can be copied, and not pickled."""

    def __reduce__(self) -> NoReturn:
        """Raise TypeError, with advice."""
        name = type(self).__name__
        raise TypeError(f"a {name} can't be pickled; {_ADVICE.get(name, _HANDLE)}")

    def __copy__(self) -> Self:
        """Return a copy with the same parts, as of any object."""
        made = object.__new__(type(self))
        state: dict[str, Any] = vars(self)
        vars(made).update(state)
        return made
