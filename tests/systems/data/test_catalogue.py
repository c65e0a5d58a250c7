"""Data sets by name: the site's catalogue, paths and addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordee.core.errors import DataError
from cordee.job.profile import ClusterProfile, StorageTier
from cordee.job.shared_data import SharedDataset
from cordee.systems.data.catalogue import known_as, locate, tier_of


@pytest.fixture
def profile(tmp_path: Path) -> ClusterProfile:
    (tmp_path / "store/imagenet").mkdir(parents=True)
    (tmp_path / "job/corpus").mkdir(parents=True)
    tiers = {
        "store": StorageTier(path=str(tmp_path / "store"), bandwidth=10**9),
        "all": StorageTier(path=str(tmp_path)),
    }
    shared = SharedDataset(path=str(tmp_path / "store/imagenet"), licence="non-commercial", group="vision")
    return ClusterProfile(name="alps", datasets={"imagenet": shared}, storage=tiers)


def test_a_path_begins_at_the_folder_it_is_written_in(profile: ClusterProfile, tmp_path: Path) -> None:
    found = locate("corpus", profile, tmp_path / "job")
    assert (found.place, found.name) == (str(tmp_path / "job/corpus"), None)


def test_a_name_of_the_catalogue_is_its_path_with_licence(profile: ClusterProfile, tmp_path: Path) -> None:
    found = locate("imagenet", profile, tmp_path / "job")
    assert (found.place, found.name) == (str(tmp_path / "store/imagenet"), "imagenet")
    assert found.shared is not None
    assert found.shared.licence == "non-commercial"


def test_a_path_that_is_there_goes_before_a_name(profile: ClusterProfile, tmp_path: Path) -> None:
    (tmp_path / "job/imagenet").mkdir()
    assert locate("imagenet", profile, tmp_path / "job").place == str(tmp_path / "job/imagenet")


def test_an_address_of_a_store_is_taken_as_it_is(profile: ClusterProfile) -> None:
    found = locate("s3://bucket/corpus/", profile)
    assert (found.place, found.remote) == ("s3://bucket/corpus", True)


@pytest.mark.parametrize("given", ["gs://bucket/x", "http://host/x"])
def test_another_kind_of_store_is_refused(profile: ClusterProfile, given: str) -> None:
    with pytest.raises(DataError, match="not known") as error:
        locate(given, profile)
    assert error.value.given == given


@pytest.mark.parametrize(
    ("given", "near"), [("imagnet", "imagenet"), ("corpsu", "job/corpus"), ("../stroe/imagenet/train", "store")]
)
def test_a_place_that_is_not_there_names_the_nearest(
    profile: ClusterProfile, tmp_path: Path, given: str, near: str
) -> None:
    with pytest.raises(DataError, match="there is no data set") as error:
        locate(given, profile, tmp_path / "job")
    assert error.value.next is not None
    assert error.value.next.endswith(f"{near}?")


def test_a_place_lies_on_the_tier_with_the_longest_path(profile: ClusterProfile, tmp_path: Path) -> None:
    found = [tier_of(str(tmp_path / path), profile) for path in ("store/imagenet", "job")]
    assert [tier[0] for tier in found if tier] == ["store", "all"]
    assert tier_of("/elsewhere", profile) is None
    assert tier_of("s3://bucket/x", profile) is None


def test_what_lies_where_a_shared_one_does_is_known_by_its_name(profile: ClusterProfile, tmp_path: Path) -> None:
    (tmp_path / "job/link").symlink_to(tmp_path / "store/imagenet")
    assert known_as(str(tmp_path / "job/link"), profile) == "imagenet"
    assert known_as(str(tmp_path / "job"), profile) is None
