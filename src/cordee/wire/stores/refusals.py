"""What a store's client says when a request fails, told apart: over soon, not there, or refused for good.

The client's own words hold the server's answer as it came, which may name an access key; nothing of them is shown but
the status and the code of S3's error table.
"""

from __future__ import annotations

import re

from cordee.core.errors import DataError
from cordee.wire.stores.local import changed
from cordee.wire.stores.patience import Passing

_STATUS = re.compile(r"status code: (\d{3}) ?([A-Za-z ]*)")
_CODE = re.compile(r"<Code>([A-Za-z]{1,60})</Code>")
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Decode|Request|Builder|Body)\b")
_TRIES = re.compile(r"\bretries: (\d+)")
_ELAPSED = re.compile(r"\belapsed: ([\d.]+)(ns|µs|ms|s)\b")
_UNITS_S = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_OVER_SOON = (408, 425, 429)
_WORDS = {
    "Connect": "no connection could be made",
    "Timeout": "it did not answer in time",
    "Interrupted": "the connection broke",
    "Decode": "the answer was cut off",
    "Body": "the answer was cut off",
}


class NoSuchObject(DataError):
    """The object, or the bucket, does not exist; `given` is its address."""


def not_there(address: str) -> NoSuchObject:
    """Return the error for an object that is not in the store."""
    return NoSuchObject("there is no such object", given=address, next="list what is there: `cordee data survey`")


def understood(error: Exception, address: str, bucket: str) -> Passing | DataError:
    """Return what a failure of the client means; `address` is the object's."""
    if isinstance(error, (Passing, DataError)):
        return error
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    name = f" {code[1]}" if code else ""
    if code and code[1] == "NoSuchBucket":
        return NoSuchObject(
            "there is no such bucket", given=f"s3://{bucket}", next="check its name, and the store in AWS_ENDPOINT_URL"
        )
    if isinstance(error, FileNotFoundError):
        return not_there(address)
    if status is not None and status[1] == "412":
        return changed(address)
    if status is not None and int(status[1]) < 500 and int(status[1]) not in _OVER_SOON:
        return _refused(int(status[1]), f"{status[1]} {status[2].strip()}{name}", address)
    if status is not None:
        return Passing(f"{status[1]} {status[2].strip()}{name}")
    if isinstance(error, ValueError):
        return DataError(
            "no store takes this name",
            given=repr(address),
            allowed="names without empty parts, `..` and control characters",
            next="rename the file, or pack into shards, which take any name",
        )
    kind = _KIND.search(text)
    return Passing(_WORDS.get(kind[1] if kind else "", "the connection broke"))


def tries(error: Exception, most: int) -> tuple[int, float]:
    """Return how often the client tried and for how long, by its own account."""
    text = str(error)
    found, elapsed = _TRIES.search(text), _ELAPSED.search(text)
    seconds = float(elapsed[1]) * _UNITS_S[elapsed[2]] if elapsed else 0.0
    return (int(found[1]) + 1 if found else most), seconds


def _refused(status: int, said: str, address: str) -> DataError:
    if status in (401, 403):
        advice = (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION; files of ~/.aws are not read), "
            "or ask for access to it"
        )
    elif status in (301, 307, 400):
        advice = "check AWS_REGION and AWS_ENDPOINT_URL"
    else:
        advice = "check the address and AWS_ENDPOINT_URL"
    return DataError(f"the store refused the request: {said}", given=address, next=advice)
