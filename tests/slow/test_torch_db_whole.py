"""Torch's whole databases, on a mesh: nothing differs without a word, or has fallen behind."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="distributed tensors need torch")

from helpers.effort import part_of
from torch_db import DATABASES, fallen_behind, operations, summary, tried

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),  # torch's
    pytest.mark.timeout(1200),
]

_SHARES = 12  # of some 60 operations each


@pytest.mark.parametrize("share", part_of(range(_SHARES), _SHARES))
def test_a_share_of_torchs_database_is_right_or_refused(share: int) -> None:
    found = tried(operations()[share::_SHARES])
    assert summary(found)["wrong"] == {}
    assert fallen_behind(found) == {}


@pytest.mark.parametrize("share", part_of(range(_SHARES), _SHARES))
@pytest.mark.parametrize("of", ["modules", "optimizers", "mistakes"])
def test_a_share_of_torchs_other_databases_is_right_or_refused(of: str, share: int) -> None:
    operations()  # brings what the others need
    found = tried(DATABASES[of]()[share::_SHARES])
    assert summary(found)["wrong"] == {}
    assert fallen_behind(found, of) == {}
