"""Names that launchers give workers."""

from __future__ import annotations

import pytest

from monarch import job
from monarch._core.wire.channel import parse_channel
from monarch.job.service_identity import allocate_service_proc_ids


def test_ids_of_a_group_are_adjacent_and_survive_a_variable() -> None:
    ids = allocate_service_proc_ids(3)
    values = [proc_id.uid.instance_value for proc_id in ids]
    assert [(value - values[0]) % 2**64 for value in values if value is not None] == [0, 1, 2]  # type: ignore[operator]
    assert {proc_id.label for proc_id in ids} == {"service"}
    assert job.deserialize_service_proc_ids(job.serialize_service_proc_ids(ids)) == ids
    assert job.new_service_proc_id() != job.new_service_proc_id()


def test_an_address_with_an_id_in_front_names_the_same_worker() -> None:
    ids = allocate_service_proc_ids(2)
    addresses = job.service_proc_addrs(["tcp://a:1", "tcp://b:1"], ids)
    assert addresses[0] == f"{ids[0]}@tcp://a:1"
    assert [parse_channel(address).name for address in addresses] == ["tcp://a:1", "tcp://b:1"]
    assert job.service_proc_addrs(["tcp://a:1"], None) == ["tcp://a:1"]
    assert job.service_proc_addr("tcp://a:1", None) == "tcp://a:1"
    with pytest.raises(ValueError, match="1 addresses of workers and 2 ids"):
        job.service_proc_addrs(["tcp://a:1"], ids)


def test_a_worker_finds_its_id_by_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = allocate_service_proc_ids(2)
    monkeypatch.setenv(job.SERVICE_PROC_IDS_ENV, job.serialize_service_proc_ids(ids))
    monkeypatch.delenv(job.SERVICE_PROC_RANK_ENV, raising=False)
    assert job.ranked_service_proc_id_from_env() is None
    monkeypatch.setenv("SLURM_PROCID", "1")
    assert job.ranked_service_proc_id_from_env(rank_env="SLURM_PROCID") == ids[1]
    monkeypatch.setenv(job.SERVICE_PROC_RANK_ENV, "2")
    with pytest.raises(ValueError, match=r"MONARCH_SERVICE_PROC_RANK is 2.*2 ids"):
        job.ranked_service_proc_id_from_env()
