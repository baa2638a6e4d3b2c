"""The share of each user in the connections of a port that all users reach."""

from __future__ import annotations

import os
import random

from monarch._listening import Who, has_room

MOST = 64


def test_the_owner_gets_a_quarter_in_any_order_of_the_others() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    draw, ours = random.Random(seed), os.geteuid()
    for _ in range(50):
        present: list[Who] = []
        others = [ours + 1 + number for number in range(draw.randrange(1, 9))]
        crowd: list[Who] = [*others, *[f"10.0.0.{number}" for number in range(draw.randrange(9))]]
        for _ in range(500):
            if present and draw.random() < 0.2:
                present.remove(draw.choice(present))
            who = draw.choice([ours, *crowd])
            if has_room(who, present, MOST):
                present.append(who)
        assert len(present) <= MOST
        assert all(present.count(who) <= MOST // 4 for who in crowd)
        present = [who for who in present if who != ours]
        assert len(present) <= MOST - MOST // 4
        for _ in range(MOST // 4):
            assert has_room(ours, present, MOST)
            present.append(ours)


def test_a_user_who_is_alone_has_his_share_and_the_owner_all_places() -> None:
    ours = os.geteuid()
    assert has_room(ours + 1, [ours + 1] * 15, MOST)
    assert not has_room(ours + 1, [ours + 1] * 16, MOST)
    assert has_room(ours, [ours] * 63, MOST) and not has_room(ours, [ours] * 64, MOST)
