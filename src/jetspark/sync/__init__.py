"""The same API without `await`, for programs that do not use asyncio.

>>> import jetspark.sync
>>> with jetspark.sync.connect("nats://localhost:4222") as nc:  # doctest: +SKIP
...     nc.publish("greet", b"hello")

Every name of `jetspark` is here, too, and means the same: what is awaited there blocks here, async
iterators are plain ones, and `async with` is `with`. Everything may be used from several threads.
One background thread runs the event loop for all connections; it ends with the last of them.
"""

from jetspark import errors

from . import _generated
from ._connect import connect
from ._generated import *  # noqa: F403 - it lists its names in __all__

__all__ = [*_generated.__all__, "connect", "errors"]
