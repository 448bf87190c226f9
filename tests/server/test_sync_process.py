"""The blocking API and the process: Ctrl-C, the end of the interpreter, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jetspark.server import NatsServer
from tests.support.servers import StartServer

START = """
import os, signal, sys, threading, time
import jetspark.sync
from jetspark.errors import *

nc = jetspark.sync.connect(sys.argv[1])
js = nc.jetstream()
"""


@contextmanager
def program(server: NatsServer, code: str) -> Iterator[subprocess.Popen[str]]:
    """A program that uses the blocking API."""
    text = START + textwrap.dedent(code)
    command = [sys.executable, "-W", "error", "-c", text, server.url]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def outcome(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


# A thread that reports when the main thread waits in a call; then the signal comes.
REPORT = """
    def report():
        while len(nc._async.thread._users) < 2:
            time.sleep(0.005)
        time.sleep(0.05)
        print("waiting", flush=True)

    reporter = threading.Thread(target=report)
    reporter.start()
"""


def say_when_waiting(call: str) -> str:
    return f"""{REPORT}
    try:
        {call}
    except KeyboardInterrupt:
        nc.flush()
        print("interrupted, and", "usable" if nc.connected else "broken")
        nc.close()
        reporter.join()
        print([thread.name for thread in threading.enumerate()])
    """


CALLS = {
    "request": "nc.subscribe('silent'); nc.request('silent', timeout=60)",
    "next": "nc.subscribe('nothing').next()",
    "iteration": "list(nc.subscribe('nothing'))",
    "events": "list(nc.events())",
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_the_call_and_the_connection_stays_usable(
    nats_server: NatsServer, call: str
) -> None:
    with program(nats_server, say_when_waiting(CALLS[call])) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        code, out, err = outcome(process)
    assert (code, err) == (0, "")
    assert out == "interrupted, and usable\n['MainThread']\n"


def test_an_interrupt_just_before_the_wait_is_noticed(nats_server: NatsServer) -> None:
    code = """
    import _thread
    def report():
        while len(nc._async.thread._users) < 2:
            time.sleep(0.005)
        _thread.interrupt_main()  # notes a signal, and does not wake who waits already

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        nc.subscribe("nothing").next()
    except KeyboardInterrupt:
        print("interrupted")
    nc.close()
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "interrupted\n", "")


def test_ctrl_c_in_a_fetch_gives_its_messages_back(nats_server: NatsServer) -> None:
    code = """
    name = f"CTRL_C_{os.getpid()}"
    stream = js.create_stream(name=name, subjects=[name], storage="memory")
    js.publish(name, b"1")
    consumer = stream.create_consumer(durable_name="c", ack_wait=60)
    """ + say_when_waiting("consumer.fetch(10, timeout=60)").replace(
        "nc.close()", "print(consumer.next(5).data)\n        nc.close()"
    )
    with program(nats_server, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        code_, out, err = outcome(process)
    assert (code_, err) == (0, "")
    assert out == "interrupted, and usable\nb'1'\n['MainThread']\n"


def test_ctrl_c_in_a_put_leaves_the_old_object(nats_server: NatsServer) -> None:
    code = """
    store = js.create_object_store(bucket=f"CTRL_C_{os.getpid()}", storage="memory")
    store.put("o", b"old")
    stored = lambda: store.status().stream_info.state.messages
    reads, writes = os.pipe()
    os.write(writes, bytes(5000))

    def report():
        while not nc._async.readings or stored() < 2 + 5:
            time.sleep(0.005)
        print("waiting", flush=True)

    reporter = threading.Thread(target=report)
    reporter.start()
    with open(reads, "rb", buffering=0) as pipe:
        try:
            store.put("o", pipe, chunk_size=1000)
        except KeyboardInterrupt:
            print("interrupted", store.get("o").read(), stored())
        os.close(writes)  # and a thread reads to the end
    reporter.join()
    store.put("o", b"new")
    print(store.get("o").read())
    js.delete_object_store(store.name)
    nc.close()
    """
    with program(nats_server, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert outcome(process) == (0, "interrupted b'old' 2\nb'new'\n", "")


def test_ctrl_c_in_a_get_leaves_the_old_file(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    target = tmp_path / "target"
    target.write_bytes(b"old")
    code = f"""
    from pathlib import Path
    target = Path({str(target)!r})
    store = js.create_object_store(bucket="CTRL_C", storage="memory")
    store.put("o", bytes(64 * 2**20))
    begun = threading.Event()

    def stall(done, total):
        if not begun.is_set():
            os.kill({server.pid}, signal.SIGSTOP)  # in the middle, nothing comes any more
            begun.set()

    def report():
        begun.wait()
        time.sleep(0.05)  # until the main thread waits: nothing tells
        print(len(os.listdir(target.parent)), flush=True)

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        store.get_file("o", target, timeout=3600, on_progress=stall)
    except KeyboardInterrupt:
        print("interrupted", os.listdir(target.parent), target.read_bytes(), flush=True)
    reporter.join()
    store.get_file("o", target)
    print(os.listdir(target.parent), target.stat().st_size)
    nc.close()
    """
    with program(server, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2\n", "the file and a part"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted ['target'] b'old'\n"
        server.resume()
        assert outcome(process) == (0, f"['target'] {64 * 2**20}\n", "")


def test_an_unhandled_interrupt_ends_the_program(nats_server: NatsServer) -> None:
    code = (
        REPORT
        + """
    for message in nc.subscribe("nothing"):
        pass
    """
    )
    with program(nats_server, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        code_, _, err = outcome(process)
    assert code_ in (-signal.SIGINT, 130)
    assert err.strip().endswith("KeyboardInterrupt")


def test_interrupts_at_any_moment_of_short_calls(nats_server: NatsServer) -> None:
    # One that comes at the very entry of a call drops its coroutine, of which Python warns.
    code = """
    import random, warnings
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")

    calling, interrupts = False, 0

    def interrupt():
        for number in range(1, 301):
            while not calling:
                time.sleep(0.0002)
            time.sleep(random.random() / 500)
            os.kill(os.getpid(), signal.SIGINT)
            while interrupts < number:
                time.sleep(0.0002)

    sender = threading.Thread(target=interrupt)
    sender.start()
    while interrupts < 300:
        try:
            calling = True
            while True:
                nc.flush()
        except KeyboardInterrupt:
            calling = False
            interrupts += 1
    sender.join()
    nc.flush()
    print("usable")
    nc.close()
    print([thread.name for thread in threading.enumerate()])
    """
    with program(nats_server, code) as process:
        code_, out, err = outcome(process)
    assert (code_, err) == (0, "")
    assert out == "usable\n['MainThread']\n"


def test_interrupts_at_any_moment_of_an_iteration_lose_no_message(nats_server: NatsServer) -> None:
    # The list is filled by a call that is noticed as a whole; nothing else stands in the loop.
    code = """
    import random, warnings
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    total, seen, iterating = 60_000, [], False
    name = f"INTERRUPTED_{os.getpid()}"
    stream = js.create_stream(name=name, subjects=[name], storage="memory")
    for number in range(total):
        js.publish_async(name, b"x")
    js.publish_async_complete()

    def interrupt(number, frame):
        if iterating:
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    messages = iter(stream.ordered_consumer().messages(stop_after=total))
    add = seen.append
    def iterate():
        for message in messages:
            add(message)
    ended = False
    while not ended:
        try:
            iterating = True
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.001))
            iterate()
            ended, iterating = True, False
        except KeyboardInterrupt:
            iterating = False
    sequences = [message.metadata.stream_sequence for message in seen]
    print(sequences == list(range(1, total + 1)))
    js.delete_stream(name)
    nc.close()
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "True\n", "")


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "messages = nc.subscribe('nothing'); print(messages.pending_messages)",
        "nc.subscribe('x', callback=lambda m: time.sleep(3600)); nc.publish('x'); nc.flush()",
        """
    messages = nc.subscribe("x")
    threading.Thread(target=lambda: list(messages), daemon=True).start()
    while not messages._async._waiters: time.sleep(0.005)""",
        # A thread that comes to it when the connection is closed already.
        """
    def late():
        while not nc.closed: time.sleep(0.0001)
        try: list(nc.subscribe("x"))
        except ConnectionClosedError: pass
    threading.Thread(target=late, daemon=True).start()""",
        "raise SystemExit(0)",
        # A block that is left, and an object that is collected, when it is too late to close.
        """
    def block():
        with nc:
            with nc.subscribe("x"):
                yield 1
    source = block(); next(source)""",
        """
    class Owner:
        def __del__(self): nc.close()
    owner = Owner()""",
        """
    store = js.create_or_update_object_store(bucket=f"EXIT_{os.getpid()}")
    reads, writes = os.pipe()
    def put():
        try: store.put("x", open(reads, "rb"))
        except ConnectionClosedError: pass
    threading.Thread(target=put, daemon=True).start()
    while not nc._async.readings: time.sleep(0.005)""",
    ],
)
def test_the_end_without_a_close_does_not_hang(nats_server: NatsServer, rest: str) -> None:
    with program(nats_server, rest) as process:
        code, _, err = outcome(process)
    assert (code, err) == (0, "")


def test_what_was_published_before_the_end_is_sent(nats_server: NatsServer) -> None:
    code = """
    name = f"AT_EXIT_{os.getpid()}"
    js.create_stream(name=name, subjects=[name], storage="memory")
    nc.publish(name, b"x")
    nc.flush()
    for _ in range(500):
        nc.publish(name, b"x")
    print(name)
    """
    with program(nats_server, code) as process:
        code_, out, err = outcome(process)
    assert (code_, err) == (0, "")
    count = f"""
    print(js.get_stream({out.strip()!r}).info().state.messages)
    """
    with program(nats_server, count) as process:
        assert outcome(process)[1] == "501\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_connection_from_before_a_fork_is_refused_in_the_child(nats_server: NatsServer) -> None:
    code = """
    subscription = nc.subscribe("x")
    nc.publish("x", b"known")
    assert subscription.next(5).data == b"known"
    child = os.fork()
    if not child:
        for call in (nc.flush, lambda: nc.publish("x", b"known"), subscription.next,
                     lambda: next(subscription)):
            try:
                call()
            except ConnectionClosedError as error:
                assert "connect again in the child" in str(error)
            else:
                os._exit(1)
        with jetspark.sync.connect(sys.argv[1]) as other:  # a new one works
            other.publish("x", b"from the child")
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    print(status, subscription.next(5).data)
    nc.close()
    """
    with program(nats_server, code) as process:
        code_, out, err = outcome(process)
    assert (code_, err) == (0, "")
    assert out == "0 b'from the child'\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_callback_connects_again(nats_server: NatsServer) -> None:
    code = """
    done, statuses = threading.Event(), []
    subscription = nc.subscribe("x")

    def callback(message):
        child = os.fork()
        if not child:
            with jetspark.sync.connect(sys.argv[1]) as other:
                other.publish("x", b"from the child")
            os._exit(0)
        statuses.append(os.waitpid(child, 0)[1])
        done.set()

    nc.subscribe("y", callback=callback)
    nc.publish("y")
    done.wait(10)
    print(statuses, subscription.next(10).data)
    nc.close()
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "[0] b'from the child'\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_may_leave_the_blocks_of_its_parent(nats_server: NatsServer) -> None:
    code = """
    with nc, nc.subscribe("x") as subscription:
        child = os.fork()
        if not child:
            nc.close()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        nc.publish("x", b"usable")
        print(status, subscription.next(5).data)
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "0 b'usable'\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_ends_does_not_disturb_an_idle_parent(nats_server: NatsServer) -> None:
    code = """
    nc.close()
    child = os.fork()
    if not child:
        sys.exit(0)
    _, status = os.waitpid(child, 0)
    with jetspark.sync.connect(sys.argv[1]) as again:
        again.flush()
    print(status)
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "0\n", "")


def test_a_signal_handler_may_connect_at_the_first_connect(nats_server: NatsServer) -> None:
    code = """
    from jetspark.sync import _thread
    from tests.support.blocking import at_entry_of

    nc.close()
    _thread._at_exit()
    _thread._of_process.clear()  # as if nobody had connected before

    def connect():
        jetspark.sync.connect(sys.argv[1]).close()

    print(at_entry_of(_thread._new_loop, connect, connect), len(_thread._of_process))
    """
    with program(nats_server, code) as process:
        assert outcome(process) == (0, "True 1\n", "")


def test_the_program_in_the_documentation_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sync.md").read_text("utf-8")
    text = page.partition("```python\n")[2].partition("```")[0]
    command = [sys.executable, "-W", "error", "-c", text]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "1 orders.0\n2 orders.1\n3 orders.2\n"
