"""Follow a configuration: load what is there, then apply every change as it happens."""

import asyncio
from typing import Any

import jetspark
from jetspark.server import run_server


class Settings:
    """The settings of one service, kept up to date by a watch."""

    def __init__(self, bucket: jetspark.KeyValue[Any], service: str) -> None:
        self.values: dict[str, Any] = {}
        self.loaded = asyncio.Event()
        self._bucket = bucket
        self._service = service

    async def follow(self) -> None:
        """Run until the service shall end; outages are bridged, and no change is missed."""
        async with self._bucket.watch(f"{self._service}.>") as watcher:
            async for entry in watcher:
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


async def main() -> None:
    async with run_server() as server, await jetspark.connect(server.url) as nc:
        js = nc.jetstream()
        bucket = await js.create_key_value(bucket="CONFIG", history=5, codec=jetspark.JSONCodec())
        await bucket.put("shop.currency", "EUR")
        await bucket.put("shop.opens", {"hour": 9, "minute": 30})
        await bucket.put("bank.currency", "CHF")

        settings = Settings(bucket, "shop")
        following = asyncio.create_task(settings.follow())
        await settings.loaded.wait()

        await bucket.put("shop.currency", "ITL")
        await bucket.put("bank.currency", "USD")  # not ours
        await bucket.delete("shop.opens")
        await bucket.put("shop.end", True)
        await following

        print([entry.value for entry in await bucket.history("shop.currency")])


asyncio.run(main())
