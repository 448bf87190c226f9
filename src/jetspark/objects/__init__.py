"""Object stores: objects of any size, kept in streams (ADR-20)."""

from .config import ObjectStoreConfig, ObjectStoreStatus
from .info import ObjectInfo, ObjectLink, ObjectMeta, ObjectOptions
from .management import ObjectStores
from .reader import ObjectReader
from .store import ObjectStore
from .watcher import ObjectWatcher

__all__ = [
    "ObjectInfo",
    "ObjectLink",
    "ObjectMeta",
    "ObjectOptions",
    "ObjectReader",
    "ObjectStore",
    "ObjectStoreConfig",
    "ObjectStoreStatus",
    "ObjectStores",
    "ObjectWatcher",
]
