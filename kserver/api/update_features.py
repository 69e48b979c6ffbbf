"""UpdateFeatures (key 57): v0-v2.

Behaviour:
- Raises or lowers the finalized feature levels of the cluster (controller/features); 0 removes a
  feature.  All updates of a request are applied, or none.
- From v1 on, validate_only returns the result without changing anything.

Errors: INVALID_UPDATE_VERSION, OPERATION_NOT_ATTEMPTED (another of the request was refused),
NOT_CONTROLLER, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR.

Versions:
- v0 flexible, allow_downgrade; v1 upgrade type, validate_only; v2 has no results by feature
"""

from __future__ import annotations

from typing import Any

from kserver.api.context import Context
from kserver.controller.features import Update, UpgradeType
from kserver.errors import ErrorCode
from kserver.wire.versions import reply_to

KEY, VERSIONS = 57, range(0, 3)

FIRST_WITH_UPGRADE_TYPE = 1


async def handle(request: Any, context: Context) -> Any:
    reply = reply_to(request)
    updates = [
        Update(feature.feature, feature.max_version_level, _how(feature, context.version))
        for feature in request.feature_updates
    ]
    errors = await context.parts.controller.update_features(
        updates, validate_only=getattr(request, "validate_only", False)
    )
    first = next((error for error in errors if error is not None), None)
    if first is None:
        return reply(results=[reply.results(feature=update.name) for update in updates])
    return reply(
        error_code=first.code,
        error_message=(
            "The update failed for all features since the following feature had an error:"
            f" {first.message}"
        ),
        results=[
            reply.results(
                feature=update.name,
                error_code=ErrorCode.operation_not_attempted if error is None else error.code,
                error_message=None if error is None else error.message,
            )
            for update, error in zip(updates, errors, strict=True)
        ],
    )


def _how(update: Any, version: int) -> int:
    if version >= FIRST_WITH_UPGRADE_TYPE:
        how: int = update.upgrade_type
        return how
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
