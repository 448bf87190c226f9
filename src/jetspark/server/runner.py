"""One nats-server process: `NatsServer`.

Every method blocks until its effect is there. The ones that can take long have an async twin
whose name begins with `a`, which does the same in a thread and leaves the event loop alone.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Unpack

from jetspark.errors import InvalidOptionError, ServerProcessError
from jetspark.server.binary import find_server, server_version
from jetspark.server.config import (
    LOCALHOST,
    Ports,
    ServerOptions,
    TLSConfig,
    build_config,
    check_options,
    render_config,
)
from jetspark.server.ports import ReservedPort
from jetspark.server.probe import health_problem
from jetspark.server.process import WatchedProcess
from jetspark.server.startable import Startable

__all__ = ["NatsServer", "run_server"]

_POLL_INTERVAL = 0.005
_MAX_POLL_INTERVAL = 0.1
_LOG_LINES_IN_ERRORS = 15
# Ports and directories are taken at the first start.
_NOT_RELOADABLE = frozenset({"name", "host", "port", "store_dir", "websocket"})
_RELOAD_DONE = "Reloaded server configuration"
_RELOAD_FAILED = "Failed to reload server configuration"


class NatsServer(Startable):
    """A nats-server that lives as long as this object.

    ```python
    with NatsServer(token="secret") as server:
        server.kill()       # a crash
        server.restart()    # back on the same port, with its data
    ```

    `stop` and `kill` end the process and keep ports, data and log, so that `start` continues where
    it was. `close`, the end of a `with` block, dropping the object and the end of the interpreter
    also give up the ports and remove whatever is temporary. The options are those of
    `ServerOptions`; `binary` is for `find_server`.
    """

    def __init__(
        self,
        *,
        binary: str | Path | None = None,
        start_timeout: float = 10.0,
        stop_timeout: float = 10.0,
        **options: Unpack[ServerOptions],
    ) -> None:
        self._options = check_options(options)
        self._binary = find_server(binary)
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._name = self._options.get("name") or f"jetspark-{secrets.token_hex(4)}"
        self._lock = threading.RLock()  # async twins run in threads of the loop's choice
        self._run: _Run | None = None
        self._finalizer: weakref.finalize[[float], NatsServer] | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start the server, unless it runs, and wait until it is ready (see `wait_ready`)."""
        with self._lock:
            if self._run is None:
                self._run = _Run(self._options)
                self._finalizer = weakref.finalize(self, self._run.close, self._stop_timeout)
            run = self._run
            if not run.running:
                self._write_config(run, self._options)
                run.process = WatchedProcess([self._binary, "-c", run.config_path], run.log_path)
            if wait:
                try:
                    self.wait_ready()
                except ServerProcessError:
                    self.kill()
                    raise

    def wait_ready(self, timeout: float | None = None, *, assets: bool = True) -> None:
        """Wait until clients can connect and JetStream, if it is on, serves its streams.

        A node of a cluster becomes ready only with a majority of its peers; with `assets=False`
        it counts as ready without the cluster's leader and streams.
        """
        timeout = self._start_timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        run = self._active()
        # Longer and longer waits, because nats-server logs every health check that fails.
        interval = _POLL_INTERVAL
        while True:
            self._check_alive(run, "while it started")
            remaining = deadline - time.monotonic()
            problem = health_problem(
                run.ports.monitor, assets=assets, timeout=max(0.1, min(1.0, remaining))
            )
            if problem is None:
                return
            if remaining <= 0:
                raise ServerProcessError(
                    f"nats-server {self._name} is not ready after {timeout:g} s: {problem}; "
                    f"its log ends with:\n{self._log_tail()}"
                )
            time.sleep(interval)
            interval = min(interval * 1.5, _MAX_POLL_INTERVAL)

    def stop(self) -> None:
        """End the server in an orderly way, paused or not; without effect if it does not run."""
        with self._lock:
            if self._run is not None:
                self._run.stop(self._stop_timeout)

    def kill(self) -> None:
        """End the server like a crash does (SIGKILL)."""
        with self._lock:
            if self._run is not None and self._run.process is not None:
                self._run.process.kill()

    def restart(self) -> None:
        """Stop the server and start it again: same ports, same data."""
        with self._lock:
            self.stop()
            self.start()

    def close(self) -> None:
        """Stop the server, give up its ports, and remove its log and temporary data."""
        with self._lock:
            if self._finalizer is not None:
                self._finalizer()
            self._run = self._finalizer = None

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open and nothing answers."""
        self._running().pause()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._running().resume()

    def lame_duck(self) -> None:
        """Enter lame duck mode: clients are told to leave, then sent away, then the server ends."""
        self._running().send_signal(signal.SIGUSR2)

    def reload(self, **changes: Unpack[ServerOptions]) -> None:
        """Change options of the running server, None being back to the default.

        Clients stay connected as far as the new options allow it. A change that nats-server does
        not take leaves everything as it was and raises ServerProcessError.
        """
        if fixed := changes.keys() & _NOT_RELOADABLE:
            raise InvalidOptionError(
                f"`{min(fixed)}` cannot change while a server runs: start another one"
            )
        options = check_options({**self._options, **changes})
        with self._lock:
            process = self._running()
            run = self._active()
            start = run.log_path.stat().st_size
            self._write_config(run, options)
            process.send_signal(signal.SIGHUP)
            try:
                self._wait_reloaded(run, start)
            except ServerProcessError:
                self._write_config(run, self._options)
                raise
            self._options = options

    async def akill(self) -> None:
        """Do `kill` without blocking the event loop."""
        await asyncio.to_thread(self.kill)

    async def arestart(self) -> None:
        """Do `restart` without blocking the event loop."""
        await asyncio.to_thread(self.restart)

    async def areload(self, **changes: Unpack[ServerOptions]) -> None:
        """Do `reload` without blocking the event loop."""
        await asyncio.to_thread(self.reload, **changes)

    @property
    def name(self) -> str:
        """The server's name."""
        return self._name

    @property
    def host(self) -> str:
        """The address for clients."""
        host = self._options.get("host") or LOCALHOST
        return {"0.0.0.0": LOCALHOST, "::": "::1"}.get(host, host)

    @property
    def port(self) -> int:
        """The client port."""
        return self._active().ports.client

    @property
    def url(self) -> str:
        """The client URL, without credentials: `nats://...`, or `tls://...` with TLS."""
        return self._url("tls" if "tls" in self._options else "nats", self.port)

    @property
    def ws_url(self) -> str:
        """The WebSocket URL: `ws://...` or `wss://...`."""
        port = self._active().ports.websocket
        if port is None:
            raise ServerProcessError(
                f"nats-server {self._name} has no WebSocket port: start it with websocket=True"
            )
        secure = isinstance(self._options.get("websocket"), TLSConfig)
        return self._url("wss" if secure else "ws", port)

    @property
    def monitor_port(self) -> int:
        """The port of the HTTP monitor, on 127.0.0.1."""
        return self._active().ports.monitor

    @property
    def monitor_url(self) -> str:
        """The URL of the HTTP monitor, under which are `/varz`, `/connz`, `/jsz` and others."""
        return f"http://{LOCALHOST}:{self.monitor_port}"

    @property
    def pid(self) -> int | None:
        """The process id, None if the server does not run."""
        run = self._run
        return run.process.pid if run and run.running and run.process else None

    @property
    def running(self) -> bool:
        """Whether the process exists, be it paused."""
        return self._run is not None and self._run.running

    @property
    def store_dir(self) -> Path:
        """The directory of JetStream's data."""
        return self._active().store_dir

    @property
    def log_path(self) -> Path:
        """The log file, which goes on over restarts and is removed by `close`."""
        return self._active().log_path

    def log(self) -> str:
        """Return the text of the log."""
        return self.log_path.read_text("utf-8", "replace")

    @property
    def version(self) -> str:
        """The version of nats-server, such as `2.15.1`."""
        return server_version(self._binary)

    def __repr__(self) -> str:
        state = f"pid {self.pid}, {self.url}" if self.running else "not running"
        return f"<NatsServer {self._name}: {state}>"

    def _active(self) -> _Run:
        if self._run is None:
            raise ServerProcessError(
                f"nats-server {self._name} was not started: call `start` first"
            )
        return self._run

    def _running(self) -> WatchedProcess:
        process = self._active().process
        if process is None or process.poll() is not None:
            raise ServerProcessError(f"nats-server {self._name} does not run: call `start` first")
        return process

    def _url(self, scheme: str, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"

    def _write_config(self, run: _Run, options: ServerOptions) -> None:
        config = build_config(options, name=self._name, ports=run.ports, store_dir=run.store_dir)
        run.config_path.write_text(render_config(config), "utf-8")

    def _wait_reloaded(self, run: _Run, start: int) -> None:
        deadline = time.monotonic() + self._start_timeout
        while True:
            self._check_alive(run, "while it reloaded its configuration")
            with run.log_path.open("rb") as log:
                log.seek(start)
                lines = log.read().decode("utf-8", "replace").splitlines()
            for line in lines:
                if _RELOAD_FAILED in line:
                    reason = line.partition(_RELOAD_FAILED)[2].lstrip(": ")
                    raise ServerProcessError(
                        f"nats-server {self._name} refused to reload: {reason}"
                    )
                if _RELOAD_DONE in line:
                    return
            if time.monotonic() > deadline:
                raise ServerProcessError(
                    f"nats-server {self._name} did not reload its configuration within "
                    f"{self._start_timeout:g} s"
                )
            time.sleep(_POLL_INTERVAL)

    def _check_alive(self, run: _Run, when: str) -> None:
        code = run.process.poll() if run.process else None
        if run.process is None or code is not None:
            raise ServerProcessError(
                f"nats-server {self._name} exited {when} (code {code}); its log ends with:\n"
                f"{self._log_tail()}"
            )

    def _log_tail(self) -> str:
        return "\n".join(self.log().splitlines()[-_LOG_LINES_IN_ERRORS:])


class _Run:
    """What a started server holds. It must not know its NatsServer, whose end it has to notice."""

    def __init__(self, options: ServerOptions) -> None:
        self._owner = os.getpid()
        self.process: WatchedProcess | None = None
        host = options.get("host") or LOCALHOST
        client = ReservedPort(host, options.get("port") or 0)
        monitor = ReservedPort(LOCALHOST)
        websocket = ReservedPort(host) if options.get("websocket") else None
        self._reserved = [port for port in (client, monitor, websocket) if port is not None]
        self.ports = Ports(
            client=client.number,
            monitor=monitor.number,
            websocket=websocket.number if websocket else None,
        )
        self._directory = Path(tempfile.mkdtemp(prefix="jetspark-server-"))
        self.config_path = self._directory / "server.json"
        self.log_path = self._directory / "server.log"
        self.store_dir = Path(options.get("store_dir") or self._directory / "store").absolute()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def stop(self, grace: float) -> None:
        if self.process is not None:
            self.process.stop(grace)

    def close(self, grace: float) -> None:
        if os.getpid() != self._owner:
            return  # a fork of the owner ends; the server is not its business
        self.stop(grace)
        for port in self._reserved:
            port.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def run_server(
    *,
    binary: str | Path | None = None,
    start_timeout: float = 10.0,
    stop_timeout: float = 10.0,
    **options: Unpack[ServerOptions],
) -> NatsServer:
    """Return a NatsServer for a `with` or `async with` block, which starts and closes it.

    ```python
    async with run_server(domain="hub") as server:
        print(server.url)
    ```
    """
    return NatsServer(
        binary=binary, start_timeout=start_timeout, stop_timeout=stop_timeout, **options
    )
