"""A kernel of Jupyter, and somebody at its notebook."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from helpers.scripts import package_path
from helpers.waiting import PATIENCE


class Kernel:
    """One of its own, as Jupyter starts it."""

    def __init__(self) -> None:
        from jupyter_client.manager import KernelManager

        self._manager = KernelManager()
        self._manager.start_kernel(env={**os.environ, "PYTHONPATH": package_path()})
        self.client: Any = self._manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(
        self,
        cell: str,
        *typed: str,
        until: str = "",
        interrupt: Callable[[], object] | None = None,
        raises: str = "KeyboardInterrupt",
    ) -> str:
        """What the cell shows while these lines are typed at the prompts that it gives; and more,
        until that is shown.

        Args:
            interrupt: Returns when the stop button is to be pressed; called when the cell has shown
                something, so that it is this cell that is interrupted.
            raises: What the cell raises then.
        """
        pressed = raised = False
        asked = self.client.execute(cell, allow_stdin=bool(typed))
        shown = ""
        for line in typed:
            shown += self.client.get_stdin_msg(timeout=PATIENCE)["content"]["prompt"]
            self.client.input(line)
        idle = False
        while not idle or until not in shown:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                shown += content["text"]
                if interrupt is not None and not pressed:
                    pressed = True
                    interrupt()
                    self._manager.interrupt_kernel()
            elif message["parent_header"].get("msg_id") != asked:
                continue
            elif kind == "error":
                if interrupt is None or content["ename"] != raises:
                    raise AssertionError("\n".join(content["traceback"]))
                raised = True
            elif kind == "status":
                idle = content["execution_state"] == "idle"
        assert raised == (interrupt is not None), shown
        return shown

    def close(self) -> None:
        self.client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()
