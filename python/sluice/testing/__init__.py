"""Tools for tests: an actor alone on the real runtime, recorded tokens, and comparisons that say where things differ."""

from sluice.testing._close import assert_close
from sluice.testing._first_difference import Difference, first_difference
from sluice.testing._harness import ActorHarness
from sluice.testing._record import record
from sluice.testing._shrink import Shrunk, shrink

__all__ = ["ActorHarness", "Difference", "Shrunk", "assert_close", "first_difference", "record", "shrink"]
