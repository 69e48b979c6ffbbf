"""SCRAM credentials of users: DescribeUserScramCredentials (key 50) and AlterUserScramCredentials
(51), KIP-554.

A password does not leave this process: the broker gets only keys derived from it (RFC 5802).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from kcli.client import arguments
from kcli.client.errors import ClientError
from kserver.errors import ErrorCode, KafkaError
from kserver.peer import Peer
from kserver.wire import versions
from kserver.wire.api_key import ApiKey

SALT_BYTES = 32
DEFAULT_ITERATIONS = MIN_ITERATIONS = 4096


class ScramMechanism(IntEnum):
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    def __str__(self) -> str:
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """Name of the hash in hashlib."""
        return f"sha{self.name.removeprefix('SCRAM_SHA_')}"


@dataclass(frozen=True, slots=True)
class NewCredential:
    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = DEFAULT_ITERATIONS


async def describe(
    peer: Peer, users: Collection[str]
) -> dict[str, dict[ScramMechanism, int] | KafkaError]:
    """Return iterations by mechanism, of these users or of all; users without credentials are left
    out.
    """
    new = versions.request(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, peer.version(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS)
    )
    response = await peer.call(new(users=[new.users(name=user) for user in users] or None))
    if response.error_code != ErrorCode.none:
        raise KafkaError(response.error_code, response.error_message or "")
    return {
        result.user: KafkaError(result.error_code, result.error_message or "")
        if result.error_code != ErrorCode.none
        else {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
        for result in response.results
        if result.error_code != ErrorCode.resource_not_found
    }


def users_of(
    credentials: Sequence[NewCredential], deletions: Sequence[tuple[str, ScramMechanism]]
) -> list[str]:
    """Return the users to change after a check of the arguments; raises ClientError."""
    users = []
    for credential in arguments.all_of(NewCredential, "credentials", credentials):
        _expect_complete(credential)
        users.append(credential.user)
    for deletion in arguments.items("deletions", deletions):
        match deletion:
            case (str(user), ScramMechanism()):
                users.append(user)
            case _:
                raise ClientError(
                    "a deletion is a user and a mechanism, ('ann', ScramMechanism.SCRAM_SHA_256),"
                    f" not {deletion!r}"
                )
    return list(dict.fromkeys(users))


def _expect_complete(credential: NewCredential) -> None:
    """Raises ClientError unless each field has its type. The password is not shown."""
    user, mechanism, password, iterations = (
        credential.user,
        credential.mechanism,
        credential.password,
        credential.iterations,
    )
    if not isinstance(user, str):
        raise ClientError(f"the user of a credential is a str, not {user!r}")
    if not isinstance(mechanism, ScramMechanism):
        raise ClientError(f"the mechanism of {user!r} is a ScramMechanism, not {mechanism!r}")
    if not isinstance(password, str):
        raise ClientError(f"the password of {user!r} is a str, not {type(password).__name__}")
    if not isinstance(iterations, int) or iterations < 1:
        raise ClientError(f"the iterations of {user!r} are 1 or more, not {iterations!r}")


async def alter(
    peer: Peer,
    credentials: Iterable[NewCredential],
    deletions: Iterable[tuple[str, ScramMechanism]],
) -> dict[str, KafkaError | None]:
    """Change credentials; return the outcome by user."""
    # Imported here: 5 ms that no other command needs.
    import hashlib
    import secrets

    new = versions.request(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, peer.version(ApiKey.ALTER_USER_SCRAM_CREDENTIALS)
    )
    upsertions = []
    for credential in credentials:
        salt = secrets.token_bytes(SALT_BYTES)
        upsertions.append(
            new.upsertions(
                name=credential.user,
                mechanism=credential.mechanism,
                iterations=credential.iterations,
                salt=salt,
                salted_password=hashlib.pbkdf2_hmac(
                    credential.mechanism.digest,
                    credential.password.encode(),
                    salt,
                    credential.iterations,
                ),
            )
        )
    response = await peer.call(
        new(
            deletions=[new.deletions(name=user, mechanism=kind) for user, kind in deletions],
            upsertions=upsertions,
        )
    )
    return {
        result.user: None
        if result.error_code == ErrorCode.none
        else KafkaError(result.error_code, result.error_message or "")
        for result in response.results
    }
