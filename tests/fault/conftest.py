"""The fixtures of the tests in which something fails."""

from tests.support.faults import far, near, nothing_left, proxy
from tests.support.ordered import impatient

__all__ = ["far", "impatient", "near", "nothing_left", "proxy"]
