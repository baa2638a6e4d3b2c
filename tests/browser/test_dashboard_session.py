"""Another server of the same machine, in the same browser, does not get the session of a dashboard.

Cookies have no port: what 127.0.0.1:1729 sets is sent to 127.0.0.1:1730, which may be another
user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from helpers.admin import Asker
from helpers.browsers import REBOUND, Tab
from helpers.demo import demo
from helpers.serving import serving

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(300)  # a program and a browser start on a busy machine

ATTACK = """async (url) => {
    const stop = `${url}/v1/meshes/trainers/stop`;
    const tried = async (what, attempt) => { try { return [what, await attempt()]; } catch (error) { return [what, null]; } };
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.src = `${url}/`;
    await new Promise((resolve) => (frame.onload = resolve));
    const opened = window.open(`${url}/`);
    // it shows a page of this origin until the other one comes
    const isOwn = () => { try { return opened.location.href; } catch { return null; } };
    while (isOwn()) await new Promise((resolve) => setTimeout(resolve, 10));
    const read = (path) => fetch(url + path, { credentials: "include" });
    return Object.fromEntries([
        await tried("storage", () => [Object.keys(localStorage), Object.keys(sessionStorage), document.cookie].join("") || null),
        await tried("read", async () => (await read("/v1/root")).status),
        await tried("header", async () => (await fetch(`${url}/v1/root`, { headers: { "X-Monarch-Session": "x" } })).status),
        await tried("script", () => new Promise((resolve, reject) => {
            const script = document.createElement("script");
            Object.assign(script, { src: `${url}/assets/app.js`, type: "module", onload: resolve, onerror: reject });
            document.body.append(script);
        })),
        await tried("frame", () => frame.contentWindow.localStorage.length),
        await tried("window", () => opened.localStorage.length),
        await tried("stop", async () => (await fetch(stop, { method: "POST", credentials: "include" })).status),
        await tried("events", () => new Promise((resolve, reject) => {
            const source = new EventSource(`${url}/v1/now/events`, { withCredentials: true });
            Object.assign(source, { onopen: () => resolve("open"), onmessage: resolve, onerror: reject });
        })),
        await tried("socket", () => new Promise((resolve, reject) => {
            const socket = new WebSocket(`${url.replace("http", "ws")}/v1/now/events`);
            Object.assign(socket, { onopen: () => resolve("open"), onerror: reject });
        })),
        await tried("beacon", () => (navigator.sendBeacon(stop, "{}"), null)),
        await tried("picture", () => new Promise((resolve, reject) => {
            Object.assign(new Image(), { src: `${url}/assets/icon.svg`, onload: resolve, onerror: reject });
        })),
        await tried("blind", async () => (await fetch(stop, { method: "POST", mode: "no-cors", credentials: "include" }), null)),
    ]);
}"""


# it is of the same origin as the dashboard, then, and reads what it is answered
AS_ITS_OWN = """async (stop) => {
    const asked = async (path, how) => {
        const answer = await fetch(path, how);
        return [path, answer.status, await answer.text()];
    };
    const session = { headers: { "X-Monarch-Session": "x" } };
    return [
        await asked("/"), await asked("/login?code=x"), await asked("/assets/app.js"),
        await asked("/v1/root"), await asked("/v1/now", session),
        await asked("/login?code=x", { method: "POST" }),
        await asked(stop, { method: "POST" }), await asked(stop, { method: "POST", ...session }),
    ];
}"""


class Attacker(BaseHTTPRequestHandler):
    """Keeps the headers of who comes."""

    heard: list[dict[str, str]]

    def do_GET(self) -> None:
        self.heard.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<form method=post></form>")

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def attacker() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its URL, on another port of 127.0.0.1, and what it has heard."""
    heard: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("With", (Attacker,), {"heard": heard}))
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}/", heard


@pytest.mark.may_keep("threads", "descriptors")  # of requests that go on when the test ends
def test_a_server_at_another_port_gets_no_session_and_can_do_nothing(browser: Any) -> None:
    with demo(16, "none") as program, attacker() as (url, heard):
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict")
        assert "code=" not in tab.page.url
        other = context.new_page()
        asked: list[Any] = []
        other.goto(url)
        other.on("request", lambda request: asked.append(request.all_headers()))
        found = other.evaluate(ATTACK, program.url)
        assert found == dict.fromkeys(found) and len(found) == 12, found
        # by a form, which is what a browser sends with least asking
        other.goto(url)
        with other.expect_response(lambda response: response.request.method == "POST") as answer:
            other.evaluate(
                "(to) => { document.forms[0].action = to; document.forms[0].submit(); }",
                f"{program.url}/v1/meshes/trainers/stop",
            )
        assert answer.value.status == 403
        assert heard and asked
        for headers in heard + asked:
            assert "cookie" not in headers and "authorization" not in headers
            assert headers.get("x-monarch-session", "x") == "x"  # that which it has made up
            sent = {name: value for name, value in headers.items() if "monarch" in name}
            assert Asker(program.url).raw("GET", "/v1/root", headers=sent)[0] == 401
        assert context.cookies() == []
        assert {mesh["name"] for mesh in program.asker.get("/v1/now")["meshes"].values()} >= {
            "trainers"
        }
        context.close()


def test_a_page_whose_name_was_led_to_this_machine_gets_nothing_of_the_dashboard(
    browser: Any,
) -> None:
    """DNS rebinding: scripts of a page that came from elsewhere run under a name and a port that
    are the dashboard's now.
    """
    stop = "/v1/meshes/trainers/stop"
    with demo(16, "none") as program:
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)  # the user is let in, by the same browser
        tab.wait_for(".verdict")
        here = f"http://{REBOUND}:{urlsplit(program.url).port}"
        other = context.new_page()
        answer = other.goto(here)
        assert answer is not None and answer.status == 421
        found = other.evaluate(AS_ITS_OWN, stop)
        assert len(found) == 8
        for path, status, text in found:
            assert (status, "this server has no name" in text) == (421, True), path
        assert other.evaluate("() => localStorage.length + sessionStorage.length") == 0
        meshes = program.asker.get("/v1/now")["meshes"].values()
        assert "trainers" in {mesh["name"] for mesh in meshes}
        context.close()


def test_no_page_before_the_dashboard_is_the_link_that_let_in(browser: Any) -> None:
    with demo(16, "none") as program:
        context = browser.new_context()
        tab = Tab(context, program.url)
        tab.page.goto(program.link)
        tab.wait_for(".verdict")
        tab.open("logs")
        seen = [tab.page.url]
        while tab.page.evaluate("() => navigation.canGoBack"):
            tab.page.go_back()
            seen.append(tab.page.url)
        assert seen[1:] and not [url for url in seen if "code" in url or "login" in url]
        assert tab.page.evaluate("() => document.referrer") == ""
        context.close()


def test_the_session_is_there_in_another_tab_and_after_a_reload(browser: Any) -> None:
    with demo(16, "none") as program:
        context = browser.new_context()
        first = Tab(context, program.url)
        first.page.goto(program.link)
        first.wait_for(".verdict")
        first.page.reload()
        first.wait_for(".verdict")
        second = Tab(context, program.url)
        second.page.goto(program.link)  # which is used up
        second.wait_for(".verdict")
        second.open("logs")
        second.wait_for("h1", "Logs")
        assert first.complaints == [], first.refused
        context.close()
        stranger = browser.new_context()
        third = Tab(stranger, program.url)
        third.page.goto(program.link)
        third.wait_for("[role=status]", "a link that was not used yet")
        assert urlsplit(third.page.url).path == "/"
        stranger.close()
