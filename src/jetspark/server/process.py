"""A child process that cannot outlive its parent, whatever way the parent ends.

Two shells see to that. The child begins as a gate: a shell that becomes the program only when
told to, so that nothing runs before it is watched. The watchdog is a shell in a session of its
own that reads from a pipe nobody writes to; when the parent is gone, even by SIGKILL, the read
ends and it kills the child. (The kernel's parent-death signal is no substitute: it fires when the
*thread* that started the child ends.) Copies of the parent made by a bare fork hold the pipe too:
the child lives until the last of them is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from jetspark.errors import ServerProcessError

__all__ = ["WatchedProcess"]

_SHELL = "/bin/sh"
_GATE = 'read -r go && exec "$@" </dev/null'
_WATCHDOG = 'read -r never; kill -9 "$1"'
_PAUSE_TIMEOUT = 5.0


class WatchedProcess:
    """A running program whose output goes to a log file."""

    def __init__(self, command: Sequence[str | Path], log_path: Path) -> None:
        try:
            with log_path.open("ab") as log:
                self._child = subprocess.Popen(
                    [_SHELL, "-c", _GATE, "gate", *command],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C in the terminal is for the parent, which then stops the child.
                    start_new_session=True,
                )
        except OSError as error:
            raise ServerProcessError(f"cannot start {command[0]}: {error}") from error
        try:
            self._watchdog: subprocess.Popen[bytes] | None = subprocess.Popen(
                [_SHELL, "-c", _WATCHDOG, "watchdog", str(self._child.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._open_gate()
        except OSError as error:
            assert self._child.stdin is not None
            self._child.stdin.close()  # the gate stays shut
            self._child.wait()
            raise ServerProcessError(f"cannot start {command[0]}: {error}") from error

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        code = self._child.poll()
        if code is not None:
            # From now on the system may give this pid to a stranger.
            self._dismiss_watchdog()
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        if self.poll() is None:
            self._child.send_signal(number)

    def pause(self) -> None:
        """Suspend the process; it is not scheduled any more when this returns."""
        self.send_signal(signal.SIGSTOP)
        if sys.platform == "linux":
            deadline = time.monotonic() + _PAUSE_TIMEOUT
            flags = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
            while self.poll() is None and os.waitid(os.P_PID, self.pid, flags) is None:
                if time.monotonic() > deadline:
                    raise ServerProcessError(f"process {self.pid} does not pause")
                time.sleep(0.001)

    def resume(self) -> None:
        """Let a suspended process continue."""
        self.send_signal(signal.SIGCONT)

    def stop(self, grace: float) -> None:
        """End the process: with SIGINT, and with SIGKILL if it takes longer than `grace`."""
        # nats-server shuts down in the same way on SIGTERM, except that it ignores it in lame
        # duck mode.
        self.send_signal(signal.SIGINT)
        self.resume()  # a suspended process would not see it
        try:
            self._child.wait(grace)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def kill(self) -> None:
        """End the process at once, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self._child.wait()
        self._dismiss_watchdog()

    def _open_gate(self) -> None:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(b"\n")
            self._child.stdin.close()
        except BrokenPipeError:
            pass  # the shell is gone already; its exit code tells

    def _dismiss_watchdog(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is None:
            return
        # Killed before its pipe is closed, or it would do its duty.
        watchdog.kill()
        watchdog.wait()
        assert watchdog.stdin is not None
        watchdog.stdin.close()
