"""Meshes: how to make them, cut them and give their dimensions other names."""

from monarch.actor import Actor, current_rank, endpoint, this_host


class Where(Actor):
    @endpoint
    def am_i(self) -> dict[str, int]:
        return dict(current_rank())


# region spawn
procs = this_host().spawn_procs(per_host={"replica": 2, "gpus": 4})
where = procs.spawn("where", Where)

assert procs.sizes == {"replica": 2, "gpus": 4}
assert len(where) == 8
# endregion

# region slice
row = where.slice(replica=1)  # an int picks one index, and the dimension is gone
assert row.sizes == {"gpus": 4}

block = where.slice(gpus=slice(1, 3))  # a slice restricts the dimension, and keeps it
assert block.sizes == {"replica": 2, "gpus": 2}

corner = where.slice(replica=1, gpus=3)  # no dimension left: one actor
assert corner.sizes == {}
assert len(corner) == 1
# endregion

# region pick
# a list keeps the dimension, too; its indices need no regular steps
some = where.slice(gpus=[0, 2, 3])
assert some.sizes == {"replica": 2, "gpus": 3}

rest = where.without([1])  # all but rank 1; ranks, points, or the `by_rank` of an error
assert rest.sizes == {"rank": 7}

three = where.select([5, 0, 2])  # these, in this order
assert three.sizes == {"rank": 3}
# endregion

# region reshape
flat = where.flatten("rank")
assert flat.sizes == {"rank": 8}

grid = where.split(gpus=("stage", "tp"), tp=2)  # the size of `stage` follows
assert grid.sizes == {"replica": 2, "stage": 2, "tp": 2}

assert where.rename(gpus="tp").sizes == {"replica": 2, "tp": 4}

one = where.flatten("rank").slice(rank=0)  # rank 0, of any shape
assert len(one) == 1
# endregion

# region rank
assert where.slice(replica=1).am_i.call().get().item(gpus=2) == {"gpus": 2}
assert where.am_i.call().get().item(replica=1, gpus=2) == {"replica": 1, "gpus": 2}
# endregion

# region on_slice
helpers = procs.slice(replica=0).spawn("helpers", Where)
assert helpers.sizes == {"gpus": 4}
# endregion

# region errors
try:
    where.slice(replicas=0)
except TypeError as error:
    print(f"{type(error).__name__}: {error}")

try:
    where.slice(gpus=4)
except IndexError as error:
    print(f"{type(error).__name__}: {error}")
# endregion
