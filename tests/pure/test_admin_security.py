"""Who is let in: each route of the table, against everything that must be refused.

A new route is in these tests by itself.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from helpers.asgi import Answer, ask
from helpers.each import for_each
from monarch.admin import app as served
from monarch.admin.guard import HEADERS, METHODS, SESSION, Guard
from monarch.admin.keys import ACT, CODE_LIFE, ROLES, SESSION_LIFE, VIEW, Keys, may
from monarch.admin.routes import NO_ROLE, ROUTES, ApiError, Route

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from monarch.admin.app import App
from monarch.admin.helper import TABLES

SECRET = b"a secret of this test"
PROGRAM = "node7 4711 1729"
OWN = "127.0.0.1:1729"
EVERY_METHOD = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "get",
)
CROSS_SITE: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1730"},
    {"Origin": f"http://{OWN}.evil.example"},
    {"Origin": f"//{OWN}"},
    {"Origin": f"http://{OWN}/"},
    *[{"Origin": junk} for junk in ("", "http://[x", "http://[::1", "http://\u2100", "\xff:\xff")],
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "anything"},
]
NO_TOKENS = (
    None,
    "Bearer ",
    "Bearer 123",
    f"Basic {Keys(SECRET, PROGRAM).token(ACT)}",
    "Bearer ÿ",
    Keys(SECRET, PROGRAM).token(ACT),
)
STRANGE_HOSTS = (
    "evil.example",
    "evil.example:1729",
    "127.0.0.1.evil.example",
    "",
    "[::2]:1729",
    "localhost@evil",
    "localhost:80@evil.example",
    "[::1]evil.example",
    "[::1]:80@evil.example",
    "localhost:",
    "localhost:80\n",
    "0.0.0.0:1729",
)

EVERY_ROUTE = for_each("route", ROUTES)
EVERY_GUARDED_ROUTE = for_each("route", [each for each in ROUTES if each.role != NO_ROLE])
OPEN = {("GET", "/"), ("GET", "/login"), ("POST", "/login"), ("GET", "/assets/{name}")}


class Nobody:
    """A program of which nothing may be asked here: who gets that far is told so."""

    saved = False

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        raise ApiError("conflict", "the program was asked")

    def expect(self) -> None:
        """Somebody opens the dashboard."""


def keys() -> Keys:
    return Keys(SECRET, PROGRAM)


def with_token(role: str, host: str = OWN) -> dict[str, str]:
    return {"Host": host, "Authorization": f"Bearer {keys().token(role)}"}


def target(route: Route) -> str:
    return "/" + "/".join("x%40y" if part[:1] == "{" else part for part in route.segments)


def refused(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
    """The answer; the program was asked nothing."""
    answer, program = told(method, path, headers, body)
    assert program.asked == 0
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value
    return answer


def told(
    method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> tuple[Answer, Nobody]:
    program = Nobody()

    async def asked() -> Answer:
        app = App(program, Guard(keys(), ["127.0.0.1", "localhost", "::1"]), 2)  # type: ignore[arg-type]
        return await ask(app, method, path, headers, body, read=10)

    return asyncio.run(asked()), program


def code_of(answer: Answer) -> str:
    found = json.loads(answer.body)
    # the former below /api/
    return str(found["code"] if "code" in found else found["error"]["code"])


def test_all_routes_are_in_the_table_that_is_served() -> None:
    assert len(TABLES) >= 3 and len(ROUTES) > 25
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert {route.method for route in ROUTES} == {"GET", "POST"}
    assert {(route.method, route.path) for route in ROUTES if route.role == NO_ROLE} == OPEN
    assert all(route.about for route in ROUTES)


@EVERY_GUARDED_ROUTE
def test_no_route_answers_without_a_token(route: Route) -> None:
    for authorization in NO_TOKENS:
        headers = (
            {"Host": OWN}
            if authorization is None
            else {"Host": OWN, "Authorization": authorization}
        )
        answer = refused(route.method, target(route), headers, b"{}")
        assert answer.status == 401 and code_of(answer) == "unauthorized", authorization


@EVERY_GUARDED_ROUTE
def test_a_token_of_another_program_opens_no_route(route: Route) -> None:
    for secret, program in ((b"another secret", PROGRAM), (SECRET, "node7 4711 1730")):
        for role in ROLES:
            headers = {"Host": OWN, "Authorization": f"Bearer {Keys(secret, program).token(role)}"}
            assert refused(route.method, target(route), headers, b"{}").status == 401


@EVERY_ROUTE
def test_no_route_answers_under_the_name_of_a_stranger(route: Route) -> None:
    for host in STRANGE_HOSTS:
        answer = refused(route.method, target(route), with_token(ACT, host), b"{}")
        assert answer.status == 421 and code_of(answer) == "wrong_host", host


@EVERY_ROUTE
def test_a_page_of_another_site_does_nothing(route: Route) -> None:
    for sender in CROSS_SITE:
        headers = {**with_token(ACT), "Content-Type": "application/json", **sender}
        answer = refused("POST", target(route), headers, b"{}")
        assert answer.status == 403 and code_of(answer) == "forbidden", sender


@EVERY_ROUTE
def test_a_route_takes_its_own_methods_only(route: Route) -> None:
    taken = {each.method for each in ROUTES if each.path == route.path}
    for method in EVERY_METHOD:
        if method in taken or (method == "HEAD" and "GET" in taken):
            assert told(method, target(route), with_token(ACT))[0].status not in (403, 405, 421)
            continue
        answer = refused(method, target(route), with_token(ACT))
        assert answer.status == 405 and code_of(answer) == "method_not_allowed", method
        assert refused(method, target(route), {"Host": OWN}).status in (401, 405)
        assert "access-control-allow-origin" not in answer.headers


@EVERY_ROUTE
def test_who_may_only_look_does_nothing(route: Route) -> None:
    answer, program = told(route.method, target(route), with_token(VIEW))
    if route.role == ACT:
        assert answer.status == 403 and code_of(answer) == "forbidden" and program.asked == 0
    else:
        assert answer.status != 403


@EVERY_ROUTE
def test_the_token_of_a_role_opens_its_routes(route: Route) -> None:
    role = route.role or ACT
    answer, _ = told(
        route.method,
        target(route),
        {**with_token(role), "Origin": f"http://{OWN}", "Sec-Fetch-Site": "same-origin"},
    )
    assert answer.status not in (401, 403, 405, 421) or route.role == NO_ROLE


@pytest.mark.parametrize(
    "route",
    [each for each in ROUTES if each.method == "POST" and each.role != NO_ROLE],
    ids=lambda route: str(route.path),
)
def test_a_body_is_of_the_type_of_its_route(route: Route) -> None:
    others = {"application/json", "application/vnd.apache.arrow.stream"} - {route.takes}
    forms = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
    for kind in (*forms, *others):
        headers = {**with_token(ACT), "Content-Type": kind}
        assert refused("POST", target(route), headers, b'{"sql": "SELECT 1"}').status == 415
    is_json = route.takes == "application/json"
    fitting = {**with_token(ACT), "Content-Type": route.takes}
    for body in (b"{", b"[]", b"1", b"[" * 100_000, b"\xff") if is_json else ():
        assert refused("POST", target(route), fitting, body).status == 400
    too_large = b" " * ((1 << 20 if is_json else 16 << 20) + 1)
    assert refused("POST", target(route), fitting, too_large).status == 413


@pytest.mark.parametrize(
    "path", ["/v1/", "/v2/x", "/v1/a/b/c/d", "//v1/root", "/v1/../v1/root", "/%2e%2e/etc/passwd"]
)
def test_a_path_of_no_route_is_not_found_by_who_may_look_and_nothing_to_others(path: str) -> None:
    found = refused("GET", path, with_token(VIEW))
    assert (found.status, found.body) == (404, b"")
    assert refused("GET", path, {"Host": OWN}).status == 401


def test_methods_that_no_route_takes_are_unknown_to_the_guard() -> None:
    assert set(METHODS) == {"GET", "HEAD", "POST"}


@pytest.mark.parametrize(
    "host", ["127.0.0.1:1729", "localhost:9000", "LOCALHOST", "[::1]:1729", "[::1]"]
)
def test_own_names_are_known_with_any_port_as_ports_are_forwarded(host: str) -> None:
    assert told("GET", "/v1/admin", with_token(VIEW, host))[0].status != 421


def ask_in_turn(guard: Guard, *requests: tuple[str, str, dict[str, str]]) -> list[Answer]:
    async def story() -> list[Answer]:
        app = App(Nobody(), guard, 2)  # type: ignore[arg-type]
        return [
            await ask(app, method, path, {"Host": OWN, **headers})
            for method, path, headers in requests
        ]

    return asyncio.run(story())


def test_a_link_is_exchanged_once_for_a_session_that_is_no_cookie() -> None:
    guard, path = Guard(keys(), ["127.0.0.1"]), f"/login?code={keys().code(VIEW, time.time())}"
    # the page, and programs that look at links in a chat, use nothing up
    page, looked, front, first, second = ask_in_turn(
        guard, *((method, path, {}) for method in ("GET", "HEAD")), ("GET", "/", {}),
        ("POST", path, {}), ("POST", path, {}),
    )  # fmt: skip
    assert page.status == looked.status == front.status == first.status == 200
    assert page.headers["content-type"].startswith("text/html") and page.body == front.body
    assert b'src="assets/app.js"' in page.body
    assert second.status == 401 and b"this link was used" in second.body
    session = json.loads(first.body)["session"]
    inside, *outside = ask_in_turn(
        guard,
        ("GET", "/openapi.json", {SESSION: session}),
        *(
            ("GET", "/openapi.json", {"Cookie": f"{name}={session}"})
            for name in (SESSION, "session", "monarch_admin_1729")
        ),
        ("GET", "/openapi.json", {"Authorization": f"Bearer {session}"}),
    )
    assert inside.status == 200 and {answer.status for answer in outside} == {401}
    for answer in (page, looked, front, first, second, inside):
        assert "set-cookie" not in answer.headers


def test_a_link_of_a_command_line_lets_in_its_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    guard, path = Guard(keys(), ["127.0.0.1"]), f"/login?code={keys().code(ACT, time.time(), True)}"
    asked: list[tuple[object, object]] = []

    def is_ours(peer: tuple[str, int], own: tuple[str, int]) -> bool:
        asked.append((peer, own))
        return len(asked) > 2

    monkeypatch.setattr(served, "is_ours", is_ours)
    # it is not used up by others, nor if they take off what says so
    tried = [path, path.replace(".here", ""), path, path]
    answers = ask_in_turn(guard, *(("POST", each, {}) for each in tried))
    assert [answer.status for answer in answers] == [401, 401, 200, 401]
    assert json.loads(answers[2].body)["role"] == ACT
    assert set(asked) == {(("127.0.0.1", 4711), ("127.0.0.1", 1729))}


def test_what_strangers_send_with_a_login_is_not_read() -> None:
    answer, _ = told("POST", "/login?code=x", {"Host": OWN}, b" " * (1 << 22))
    assert answer.status == 401


def test_a_session_is_no_token_and_a_code_is_no_session() -> None:
    made = keys()
    session, code, token = made.session(ACT, 1000.0), made.code(ACT, 1000.0), made.token(ACT)
    assert made.role_of_session(session, 1000.0) == ACT
    assert [
        made.role_of_session(each, 1000.0)
        for each in (code, token, "", "act.9999999999", session + "0")
    ] == [None] * 5
    assert [made.role_of_token(each) for each in (code, session, "")] == [None] * 3
    assert [made.use_code(each, 1000.0) for each in (session, token, "", "..", "act.1.x.")] == [
        None
    ] * 5


def test_what_opens_one_program_opens_no_other_of_the_cluster() -> None:
    made, other = keys(), Keys(SECRET, "node7 4712 1729")
    assert other.role_of_token(made.token(ACT)) is None
    assert other.use_code(made.code(ACT, 1000.0), 1000.0) is None
    assert other.role_of_session(made.session(ACT, 1000.0), 1000.0) is None


def test_no_role_is_made_of_a_smaller_one() -> None:
    made = keys()
    session = made.session(VIEW, 1000.0)
    assert made.role_of_session(session.replace(VIEW, ACT, 1), 1000.0) is None
    assert made.use_code(made.code(VIEW, 1000.0).replace(VIEW, ACT, 1), 1000.0) is None
    assert made.token(VIEW) != made.token(ACT) and made.role_of_token(made.token(VIEW)) == VIEW
    assert [may(VIEW, VIEW), may(VIEW, ACT), may(ACT, VIEW), may(ACT, ACT)] == [
        True,
        False,
        True,
        True,
    ]


def test_sessions_and_links_grow_old() -> None:
    made = keys()
    assert made.role_of_session(made.session(VIEW, 0.0), SESSION_LIFE - 1) == VIEW
    assert made.role_of_session(made.session(VIEW, 0.0), SESSION_LIFE + 1) is None
    assert made.use_code(made.code(VIEW, 1000.0), 1000.0 + CODE_LIFE + 1) is None
    assert made.use_code(made.code(VIEW, 1000.0), 1000.0 + CODE_LIFE - 1) == VIEW
    assert made.use_code(made.code(VIEW, 2000.0), 1000.0) is None  # of the future


def test_a_helper_that_starts_again_takes_no_link_that_the_one_before_may_have_taken() -> None:
    code = keys().code(VIEW, 1000.0)
    assert Keys(SECRET, PROGRAM, since=1001.0).use_code(code, 1002.0) is None
    assert Keys(SECRET, PROGRAM, since=1001.0).use_code(keys().code(VIEW, 1001.5), 1002.0) == VIEW


def test_links_that_were_used_are_forgotten_when_they_are_too_old() -> None:
    made = keys()
    for number in range(50):
        assert made.use_code(made.code(VIEW, float(number)), float(number)) == VIEW
    assert made.use_code(made.code(VIEW, CODE_LIFE * 3), CODE_LIFE * 3) == VIEW
    assert len(made._used) == 1
