"""The admin interface of a program that has spawned nothing yet."""

from __future__ import annotations

import pytest

from helpers.scripts import run_script

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")


@pytest.mark.timeout(180)
def test_an_interface_that_is_opened_before_the_first_spawn_stays_open() -> None:
    result = run_script(
        """
        import urllib.request
        from monarch import admin
        from monarch.actor import this_host

        def tree(way):
            request = urllib.request.Request(
                way["url"] + "/v1/tree", headers={"Authorization": f"Bearer {way['token']}"}
            )
            return urllib.request.urlopen(request, timeout=60).read().decode()

        if __name__ == "__main__":
            way = admin.access()
            assert "(0 procs)" in tree(way)
            procs = this_host().spawn_procs(per_host={"n": 2})
            procs.initialized.get()
            while "(2 procs)" not in tree(way):
                pass
            assert admin.access()["url"] == way["url"]
            print("open")
        """
    )
    assert (result.exit_code, result.stdout) == (0, "open\n"), result
    assert result.left_behind == []
