"""Follow a configuration in a thread: load what is there, then apply every change."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jetspark.sync
from jetspark.server import run_server


class Settings:
    """The settings of one service, kept up to date by a watch."""

    def __init__(self, bucket: jetspark.sync.KeyValue[Any], service: str) -> None:
        self.values: dict[str, Any] = {}
        self.loaded = threading.Event()
        self._bucket = bucket
        self._service = service

    def follow(self) -> None:
        """Run until the service shall end; outages are bridged, and no change is missed."""
        with self._bucket.watch(f"{self._service}.>") as watcher:
            for entry in watcher:
                if entry is None:  # all that was there has come; what follows is new
                    print("loaded:", self.values)
                    self.loaded.set()
                elif entry.key == f"{self._service}.end":
                    return
                elif entry.deleted:
                    self.values.pop(entry.key, None)
                    print(entry.key, "has its default again")
                else:
                    self.values[entry.key] = entry.value
                    if self.loaded.is_set():
                        print(entry.key, "is now", entry.value)


def main() -> None:
    with run_server() as server, jetspark.sync.connect(server.url) as nc:
        js = nc.jetstream()
        bucket = js.create_key_value(bucket="CONFIG", history=5, codec=jetspark.JSONCodec())
        bucket.put("shop.currency", "EUR")
        bucket.put("shop.opens", {"hour": 9, "minute": 30})
        bucket.put("bank.currency", "CHF")

        settings = Settings(bucket, "shop")
        with ThreadPoolExecutor() as pool:
            following = pool.submit(settings.follow)
            settings.loaded.wait()
            bucket.put("shop.currency", "ITL")
            bucket.put("bank.currency", "USD")  # not ours
            bucket.delete("shop.opens")
            bucket.put("shop.end", True)
            following.result()

        print([entry.value for entry in bucket.history("shop.currency")])


main()
