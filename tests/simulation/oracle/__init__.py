"""The claims checked in a run, one module per family, independent of the core's rules.

The history has every written entry. Its consequences are computed by the naive
implementations of the unit tests, or stated here in a few lines.
"""

from tests.simulation.mix import Mix
from tests.simulation.oracle.agreement import Agreement
from tests.simulation.oracle.calm import Calm
from tests.simulation.oracle.compared import Comparisons
from tests.simulation.oracle.delivery import Delivery
from tests.simulation.oracle.drafts import Drafts
from tests.simulation.oracle.history import History, Record, Violation
from tests.simulation.oracle.hosts import Hosts
from tests.simulation.oracle.in_flight import InFlight
from tests.simulation.oracle.stores import Stores

__all__ = ["Oracle", "Record", "Violation"]


class Oracle:
    """All claims of one run, over one history."""

    def __init__(self, mix: Mix) -> None:
        self.history = History()
        self.stores = Stores(self.history, mix)
        self.hosts = Hosts(self.history, mix)
        self.drafts = Drafts(mix)
        self.delivery = Delivery()
        self.calm = Calm(mix)
        self.comparisons = Comparisons(mix)
        self.in_flight = InFlight(mix)
        self.agreement = Agreement(self.history, mix)
