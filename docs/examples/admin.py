"""The admin interface of a program, asked by itself; other programs ask in the same way."""

import json
import os
import urllib.request

from monarch.actor import Actor, endpoint, this_host


class Trainer(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


if __name__ == "__main__":
    procs = this_host().spawn_procs({"gpus": 2}, name="trainers")
    procs.spawn("trainer", Trainer).pid.call().get()

    # region access
    from monarch import admin

    there = admin.access("view")  # opens the interface, unless it is open

    def ask(path: str, body: dict[str, object] | None = None) -> dict[str, object]:
        content = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {there['token']}", "Content-Type": "application/json"}
        request = urllib.request.Request(there["url"] + path, content, headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    root = ask("/v1/root")
    verdict = ask("/v1/why")
    ranks = ask(
        "/v1/query",
        {"sql": "SELECT rank, handled FROM actors WHERE name = 'trainer' ORDER BY rank"},
    )
    # endregion
    assert root["identity"] == "root" and verdict["status"] in ("fine", "slow")
    assert ranks["rows"] == [{"rank": 0, "handled": 1}, {"rank": 1, "handled": 1}]
