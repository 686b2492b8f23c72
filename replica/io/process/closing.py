"""What an `async with` block closes at its end."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Is itself in its `async with` block, and closed behind it."""

    @abstractmethod
    async def close(self) -> object:
        """Close it; what it returns is for those who call it themselves."""

    async def __aenter__(self) -> Self:
        """Return itself."""
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Close it, however the block ended."""
        await self.close()
