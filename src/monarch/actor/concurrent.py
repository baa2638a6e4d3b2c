"""Endpoints with invocations that overlap."""

from __future__ import annotations

from .._core.actors.endpoint import concurrent_endpoint

__all__ = ["concurrent_endpoint"]
