"""Declaring, changing and deleting channels of Databus. Pure.

What a channel is to be is JSON that was checked before; here it has a size, and is the same or not.
"""

from dataclasses import replace

from bmq.errors import ChannelExists, InvalidRequest, UnknownChannel
from bmq.metadata.channels import StoredChannel, channel, channel_names, declared, deleted, revision
from bmq.metadata.image import Image
from bmq.naming.channels import check_channel_name
from bmq_controller.machine.decision import Decision
from bmq_controller.machine.limits import DEFAULTS, Limits, check_config_bytes


def create_channel(
    image: Image, now_ms: int, name: str, spec: str, *, limits: Limits = DEFAULTS, validate_only: bool = False
) -> Decision[None]:
    """A channel that is not there yet. Raises RequestError."""
    check_channel_name(name)
    if channel(image, name) is not None:
        raise ChannelExists(f"there is a channel {name!r} already: change it, or choose another name")
    count = sum(1 for _ in channel_names(image))
    if count >= limits.channels:
        raise InvalidRequest(
            f"the cluster has {count} channels, and channels_max is {limits.channels}: delete one first, or raise it "
            "on all controllers"
        )
    _check_size(spec, limits=limits)
    made = StoredChannel(name=name, spec=spec, revision=revision(image) + 1, created_ms=now_ms)
    check_config_bytes(image, made.size_bytes, limits=limits)
    return Decision(None, () if validate_only else declared(made))


def change_channel(
    image: Image, name: str, spec: str, *, limits: Limits = DEFAULTS, validate_only: bool = False
) -> Decision[None]:
    """The channel is as `spec` says from now on. Raises RequestError."""
    before = find_channel(image, name)
    if before.spec == spec:
        return Decision(None)
    if len(spec) > len(before.spec):
        _check_size(spec, limits=limits)
    after = replace(before, spec=spec, revision=revision(image) + 1)
    check_config_bytes(image, after.size_bytes - before.size_bytes, limits=limits)
    return Decision(None, () if validate_only else declared(after))


def delete_channel(image: Image, name: str) -> Decision[None]:
    """It is gone; its topic stays. Raises UnknownChannel."""
    find_channel(image, name)
    return Decision(None, deleted(name, revision=revision(image) + 1))


def find_channel(image: Image, name: str) -> StoredChannel:
    """Raises UnknownChannel."""
    found = channel(image, name)
    if found is None:
        raise UnknownChannel(f"there is no channel {name[:40]!r}: list the channels, or create it")
    return found


def _check_size(spec: str, *, limits: Limits) -> None:
    size_bytes = len(spec.encode(errors="surrogatepass"))
    if size_bytes > limits.channel_bytes:
        raise InvalidRequest(
            f"spec has {size_bytes} bytes, and channel_bytes_max is {limits.channel_bytes}: say less, or raise it on "
            "all controllers"
        )
