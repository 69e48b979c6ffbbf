"""Handling of the controller's requests: checks the sender, then publishes them to this broker."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kserver.api.context import Context
from kserver.errors import ErrorCode
from kserver.wire.control import (
    ControlMessage,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)

log = logging.getLogger(__name__)


async def publish(
    request: LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest,
    context: Context,
    refuse: Callable[[ErrorCode], ControlMessage],
) -> ControlMessage:
    """Publish the controller's request.

    Errors: CLUSTER_AUTHORIZATION_FAILED if no registered broker has the sender's address,
    INVALID_REQUEST if the sender is not the controller of an epoch that is new here.
    """
    parts, name = context.parts, type(request).__name__.removesuffix("Request")
    if not await context.from_broker(name):
        return refuse(ErrorCode.cluster_authorization_failed)
    controller, epoch = request.controller_id, request.controller_epoch
    if epoch > parts.publisher.controller_epoch and (
        not await parts.senders.is_controller(controller, epoch)
    ):
        log.warning(
            "%s from %s refused: ZooKeeper does not confirm controller %d in epoch %d",
            name,
            context.session.address,
            controller,
            epoch,
        )
        return refuse(ErrorCode.invalid_request)
    return await parts.publisher.publish(request)
