"""Server URLs: what is understood, what is refused, and that no secret is ever shown."""

from __future__ import annotations

import pickle
from ipaddress import IPv6Address
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jetspark.connection.urls import ServerURL, is_ip, parse_url, parse_urls
from jetspark.errors import InvalidOptionError, InvalidURLError

SCHEMES = ("nats", "tls", "ws", "wss")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://localhost:4222", ServerURL("nats", "localhost", 4222)),
        ("localhost", ServerURL("nats", "localhost", 4222)),
        ("localhost:1234", ServerURL("nats", "localhost", 1234)),
        ("NATS://Example.COM", ServerURL("nats", "example.com", 4222)),
        ("nats://localhost/", ServerURL("nats", "localhost", 4222)),
        ("tls://demo.nats.io", ServerURL("tls", "demo.nats.io", 4222)),
        ("ws://gateway", ServerURL("ws", "gateway", 80)),
        ("wss://gateway", ServerURL("wss", "gateway", 443)),
        ("wss://gateway:8443/nats/x", ServerURL("wss", "gateway", 8443, path="/nats/x")),
        ("ws://gateway?key=1", ServerURL("ws", "gateway", 80, path="/?key=1")),
        ("ws://gateway/", ServerURL("ws", "gateway", 80)),
        ("127.0.0.1:4333", ServerURL("nats", "127.0.0.1", 4333)),
        ("nats://[::1]", ServerURL("nats", "::1", 4222)),
        ("[::1]:4222", ServerURL("nats", "::1", 4222)),
        ("[2001:DB8:0::1]:4333", ServerURL("nats", "2001:db8::1", 4333)),
        # As this version of Python writes it.
        ("[::ffff:1.2.3.4]", ServerURL("nats", str(IPv6Address("::ffff:1.2.3.4")), 4222)),
        ("[fe80::1%25eth0]", ServerURL("nats", "fe80::1%eth0", 4222)),
        ("nats://bob:secret@host", ServerURL("nats", "host", 4222, "bob", "secret")),
        ("bob:secret@host:99", ServerURL("nats", "host", 99, "bob", "secret")),
        ("nats://bob:@host", ServerURL("nats", "host", 4222, "bob", "")),
        ("nats://s3cr3t@host", ServerURL("nats", "host", 4222, token="s3cr3t")),
        ("nats://b%40b:p%3A%2F%20%C3%A9@host", ServerURL("nats", "host", 4222, "b@b", "p:/ é")),
        ("nats://bob:a:b@c@host", ServerURL("nats", "host", 4222, "bob", "a:b@c")),
        ("nats://bob:x@[::1]:5", ServerURL("nats", "::1", 5, "bob", "x")),
        ("nats://my_host-1.local.", ServerURL("nats", "my_host-1.local.", 4222)),
        ("nats://münchen.example", ServerURL("nats", "münchen.example", 4222)),
    ],
)
def test_parses(text: str, expected: ServerURL) -> None:
    assert parse_url(text) == expected


def test_default_scheme_sets_scheme_and_port() -> None:
    assert parse_url("host", default_scheme="wss") == ServerURL("wss", "host", 443)
    assert parse_url("nats://host", default_scheme="wss") == ServerURL("nats", "host", 4222)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("http://host", "the scheme is not one of nats, tls, ws, wss"),
        ("://host", "scheme"),
        ("nats://", "no host"),
        ("nats://:4222", "no host"),
        ("nats:///path", "path"),
        ("nats://bob:pw@", "no host"),
        ("nats://@host", "before '@' is empty"),
        ("nats://:pw@host", "before '@' is empty"),
        ("nats://host:", "port"),
        ("nats://host:0", "port"),
        ("nats://host:65536", "port"),
        ("nats://host:-1", "port"),
        ("nats://host:4x22", "port"),
        ("nats://host:" + "9" * 5000, "port"),
        ("nats://host:٤٢٢٢", "port"),
        ("nats://ho st", "space"),
        (" nats://host", "space"),
        ("nats://host\n", "space"),
        ("nats://ho\x00st", "cannot be seen"),
        ("nats://a,b", "host name"),
        ("nats://a..b", "host name"),
        ("nats://.", "host name"),
        ("nats://" + "a" * 64, "host name"),
        ("nats://" + "a." * 200, "host name"),
        ("nats://a%20b", "host name"),
        ("::1", "brackets"),
        ("nats://::1:4222", "brackets"),
        ("[::1", "brackets"),
        ("[::1]4222", "brackets"),
        ("[1.2.3.4]:1", "not an IPv6 address"),
        ("[host]", "not an IPv6 address"),
        ("[fe80::1%25a b]", "space"),
        ("[fe80::1%25a%b]", "not an IPv6 address"),
        ("nats://host/subject", "only ws and wss"),
        ("nats://host?x=1", "only ws and wss"),
        ("nats://bob:pa/ss@host", "%2F"),
        ("ws://host/a#b", "fragment"),
        ("nats://bob:50%@host", "%25"),
        ("nats://bob:%ff@host", "percent-encoded"),
    ],
)
def test_refuses(text: str, reason: str) -> None:
    with pytest.raises(InvalidURLError) as caught:
        parse_url(text)
    assert reason in str(caught.value)


def test_error_names_the_url() -> None:
    with pytest.raises(InvalidURLError, match=r"^server URL 'nats://h:70000': the port"):
        parse_url("nats://h:70000")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://bob:hunter2@host", "'http://***@host'"),
        ("nats://hunter2@host:x", "'nats://***@host:***'"),
        ("nats://bob:hun/ter2@host", "'nats://***@host'"),
        ("nats://bob:hun?ter2@host", "'nats://***@host'"),
        ("nats://bob:hunter2", "'nats://bob:***'"),
        ("nats://bob:hunter:2", "'nats://bob:***'"),
        ("bob:hunter2", "'bob:***'"),
        ("bob:hunter2@", "'***@'"),
        ("nats://host?auth=hunter2", "'nats://host?***'"),
        ("http://[::1]:4222", "'http://[::1]:4222'"),
        ("http://[::1]:hunter2", "'http://[::1]:***'"),
        ("http://host:4222/a", "'http://host:4222/a'"),
        ("bob:hunter2://host", "'bob:***'"),
    ],
)
def test_errors_redact(text: str, shown: str) -> None:
    with pytest.raises(InvalidURLError) as caught:
        parse_url(text)
    assert shown in str(caught.value)


def test_text_forms_hide_credentials() -> None:
    for text in (
        "nats://bob:hunter2@host:1",
        "nats://hunter2@host:1",
        "wss://bob:hunter2@host:1/p?key=hunter2",
    ):
        url = parse_url(text)
        for shown in (str(url), repr(url), f"{[url]}"):
            assert "hunter2" not in shown
            assert "host:1" in shown
    assert str(parse_url("wss://h/p?key=1")) == "wss://h:443/p?***"
    assert repr(parse_url("[::1]")) == "ServerURL('nats://[::1]:4222')"


def test_properties() -> None:
    url = parse_url("tls://bob:x@[::1]:5222")
    assert url.netloc == "[::1]:5222"
    assert (url.is_websocket, url.wants_tls) == (False, True)
    urls = [parse_url(f"{scheme}://h") for scheme in SCHEMES]
    flags = {url.scheme: (url.is_websocket, url.wants_tls) for url in urls}
    assert flags == {
        "nats": (False, False),
        "tls": (False, True),
        "ws": (True, False),
        "wss": (True, True),
    }


def test_key_ignores_scheme_and_credentials() -> None:
    keys = {parse_url(text).key for text in ("nats://A", "tls://a:4222", "bob:x@a", "tok@a")}
    assert len(keys) == 1
    assert parse_url("a:1").key != parse_url("a:2").key
    assert parse_url("ws://a/x").key != parse_url("ws://a/y").key


def test_pickles() -> None:
    url = parse_url("nats://bob:x@host")
    assert pickle.loads(pickle.dumps(url)) == url


def test_is_ip() -> None:
    assert is_ip("127.0.0.1")
    assert is_ip("::1")
    assert not is_ip("localhost")
    assert not is_ip("1.2.3")


class TestParseUrls:
    def test_text_list_and_iterable(self) -> None:
        expected = [ServerURL("nats", "a", 4222), ServerURL("nats", "b", 5)]
        assert parse_urls("nats://a, b:5,") == expected
        assert parse_urls(["a", "nats://b:5"]) == expected
        assert parse_urls(text for text in ("a", "b:5")) == expected

    def test_none_is_the_environment_or_the_local_server(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("NATS_URL", raising=False)
        assert parse_urls(None) == [ServerURL("nats", "localhost", 4222)]
        monkeypatch.setenv("NATS_URL", "")
        assert parse_urls(None) == [ServerURL("nats", "localhost", 4222)]
        monkeypatch.setenv("NATS_URL", "tls://a,tls://b")
        assert [str(url) for url in parse_urls(None)] == ["tls://a:4222", "tls://b:4222"]
        monkeypatch.setenv("NATS_URL", "http://bob:hunter2@a")
        with pytest.raises(InvalidURLError, match=r"^environment variable NATS_URL: ") as caught:
            parse_urls(None)
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize("value", ["", " , "])
    def test_blank_text(self, value: str) -> None:
        with pytest.raises(InvalidURLError, match="empty"):
            parse_urls(value)

    def test_empty_list(self) -> None:
        with pytest.raises(InvalidOptionError, match="'servers' is empty"):
            parse_urls([])

    def test_a_list_item_is_one_url(self) -> None:
        with pytest.raises(InvalidURLError):
            parse_urls(["a,b"])
        assert parse_urls(["nats://bob:a,b@host"])[0].password == "a,b"

    def test_websocket_and_other_urls_do_not_mix(self) -> None:
        with pytest.raises(InvalidOptionError, match="mixes") as caught:
            parse_urls(["nats://a", "wss://bob:hunter2@b"])
        assert "wss://b:443" in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert len(parse_urls("ws://a,wss://b")) == 2
        assert len(parse_urls("nats://a,tls://b")) == 2


@given(st.text())
@example("[%25]")
@example("a\u2024b.ws")
@example("\u3002")
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidURLError:
        return
    assert 1 <= url.port <= 65535
    assert url.host


@given(st.text(alphabet="natswl:/@[]?#%.,0123456789\u00e9- ", max_size=40))
def test_any_url_like_text_parses_or_is_refused(text: str) -> None:
    try:
        url = parse_url(text)
    except InvalidURLError:
        return
    assert parse_url(f"{url.scheme}://{url.netloc}{url.path}").key == url.key


_LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
_HOSTS = st.one_of(
    st.lists(_LABEL, min_size=1, max_size=4).map(".".join),
    st.ip_addresses().map(str),
)
_SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(
    scheme=st.sampled_from(SCHEMES),
    host=_HOSTS,
    port=st.integers(1, 65535),
    credentials=st.one_of(
        st.none(), st.tuples(_SECRETS), st.tuples(_SECRETS, st.one_of(st.just(""), _SECRETS))
    ),
)
def test_round_trip(scheme: str, host: str, port: int, credentials: tuple[str, ...] | None) -> None:
    userinfo = ":".join(quote(part, safe="") for part in credentials or ()) + (
        "@" if credentials else ""
    )
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    url = parse_url(f"{scheme}://{userinfo}{netloc}")
    assert (url.scheme, url.host, url.port, url.netloc) == (scheme, host, port, netloc)
    if credentials is None:
        assert (url.user, url.password, url.token) == (None, None, None)
    elif len(credentials) == 1:
        assert (url.user, url.password, url.token) == (None, None, credentials[0])
    else:
        assert (url.user, url.password, url.token) == (*credentials, None)
    assert parse_url(str(url)) == ServerURL(scheme, host, port)


@given(
    before=st.text(alphabet="nats:/@[]?# ", max_size=6),
    after=st.text(alphabet="host:/@[]?#x 9", max_size=10),
)
def test_what_stands_before_an_at_sign_is_never_shown(before: str, after: str) -> None:
    with pytest.raises(InvalidURLError) as caught:
        parse_url(f"nats://{before}bob:hunter2{before}@{after}@:")
    assert "hunter2" not in str(caught.value)
