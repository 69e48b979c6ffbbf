"""Quotas: per-client rate limits, and the throttle time after exceeding one (KIP-13, 124, 599).

Pure: bounds, amounts and the time go in, throttle times in milliseconds come out.

    quota                         amount                              counted in
    producer_byte_rate            bytes of Produce requests           a Rate
    consumer_byte_rate            bytes of records fetched            a Rate
    request_percentage            time that requests took, in         a Rate
                                  percent of this broker's thread
    controller_mutation_rate      partitions created and deleted      a TokenBucket
    connection_creation_rate      connections of an address           a Rate
    max.connection.creation.rate  connections of all                  a Rate

The bound of a client is the first of: user + client id, user + default client, user, default user +
client id, default user + default client, default user, client id, default client.  If that entity
has no client id, all clients of the user share it; else each client id has its own.  A client
without an id gets the default client's bound (in Kafka: none).

The throttle time is how long it takes, without further use, until the rate is back at its bound:
for an observed rate O over a window W and a bound T, (O - T) / T * W.  For request time and
connections it is at most one sample long.  (Kafka: ClientQuotaManager, QuotaUtils, Rate,
TokenBucket, ConnectionQuotas.)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from kserver.model import QuotaEntity

T = TypeVar("T")

MAX_TRACKED = 10_000
"""Maximum number of clients, or addresses, tracked per quota: clients choose their ids."""
MAX_THROTTLE_MS = 2**31 - 1
"""Maximum throttle time, in ms, that a response can contain."""

BoundsByEntity: TypeAlias = Mapping[QuotaEntity, Mapping[str, float]]
"""Type of ClusterMetadata.quotas."""


class RateWindow(NamedTuple):
    """Sampling of a rate: quota.window.num and quota.window.size.seconds."""

    samples: int
    sample_ms: int

    @property
    def most_s(self) -> float:
        """Seconds' worth of a rate that a client without previous use may use at once."""
        return (self.samples - 1) * self.sample_ms / 1000


class Rate:
    """Amounts per second, over the samples of a window.

    A sample begins with the first amount after the previous sample was complete, and counts until
    its last amount has left the window.  Time before the first sample counts as sampled: all
    samples except the current one, so that a new client may not use everything at once.
    """

    __slots__ = ("_samples", "_window")

    def __init__(self, window: RateWindow) -> None:
        self._window = window
        self._samples: deque[list[float]] = deque()
        """Three figures per sample, the oldest first: its start, the time of its last amount, and
        the sum."""

    def record(self, amount: float, now_ms: int) -> None:
        samples, window = self._samples, self._window
        if not samples or now_ms - samples[-1][0] >= window.sample_ms:
            samples.append([now_ms, now_ms, 0.0])
            if len(samples) > window.samples + 1:
                samples.popleft()
        last = samples[-1]
        last[1] = now_ms
        last[2] += amount

    def measure(self, now_ms: int) -> tuple[float, int]:
        """Return the rate, and the window over which it was measured, in ms."""
        samples, (number, sample_ms) = self._samples, self._window
        while samples and now_ms - samples[0][1] >= number * sample_ms:
            samples.popleft()
        elapsed_ms = now_ms - int(samples[0][0]) if samples else 0
        missing = number - 1 - elapsed_ms // sample_ms
        window_ms = max(elapsed_ms + max(missing, 0) * sample_ms, 1)
        return sum(sample[2] for sample in samples) * 1000 / window_ms, window_ms

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """Return the time in ms until the rate is back at the bound without further use."""
        rate, window_ms = self.measure(now_ms)
        if rate <= bound:
            return 0
        if bound <= 0:
            return MAX_THROTTLE_MS
        return min(max(round((rate - bound) / bound * window_ms), 1), MAX_THROTTLE_MS)


class TokenBucket:
    """A bucket that fills at the bound, up to one window's worth; may be overdrawn once."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: RateWindow) -> None:
        self._window = window
        self._tokens = 0.0
        self._filled_ms: int | None = None

    def tokens(self, bound: float, now_ms: int) -> float:
        most = bound * self._window.samples * self._window.sample_ms / 1000
        if self._filled_ms is None:
            self._tokens = most
        else:
            self._tokens += bound * (now_ms - self._filled_ms) / 1000
        self._tokens = min(self._tokens, most)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, amount: float, bound: float, now_ms: int) -> None:
        self.tokens(bound, now_ms)
        self._tokens -= amount

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """Return the time in ms until it is no longer overdrawn."""
        tokens = self.tokens(bound, now_ms)
        return min(max(round(-tokens / bound * 1000), 1), MAX_THROTTLE_MS) if tokens < 0 else 0


class QuotaBounds:
    """Bounds of one quota, by entity."""

    def __init__(self, key: str, bounds: BoundsByEntity) -> None:
        self._bounds = {entity: keys[key] for entity, keys in bounds.items() if key in keys}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def of(self, user: str, client_id: str) -> tuple[QuotaEntity, float] | None:
        """Return the entity that the client is counted under, and its bound; None without a
        bound."""
        bounds = self._bounds
        for owner, key in (
            (QuotaEntity(user, client_id), (user, client_id)),
            (QuotaEntity(user, client_id), (user, "")),
            (QuotaEntity(user), (user, None)),
            (QuotaEntity(user, client_id), ("", client_id)),
            (QuotaEntity(user, client_id), ("", "")),
            (QuotaEntity(user), ("", None)),
            (QuotaEntity(None, client_id), (None, client_id)),
            (QuotaEntity(None, client_id), (None, "")),
        ):
            bound = bounds.get(QuotaEntity(*key))
            if bound is not None:
                return owner, bound
        return None

    def of_address(self, address: str) -> float | None:
        bound = self._bounds.get(QuotaEntity(ip=address))
        return self._bounds.get(QuotaEntity(ip="")) if bound is None else bound


class Tracked(Generic[T]):
    """Counters by owner; if there are too many, the least recently used one is dropped."""

    def __init__(self, new: Callable[[], T]) -> None:
        self._new = new
        self._counts: OrderedDict[object, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._counts)

    def of(self, owner: object) -> T:
        count = self._counts.get(owner)
        if count is None:
            if len(self._counts) >= MAX_TRACKED:
                self._counts.popitem(last=False)
            count = self._counts[owner] = self._new()
        else:
            self._counts.move_to_end(owner)
        return count


class RateQuota:
    """A rate limit that applies to each client."""

    def __init__(self, window: RateWindow, longest_ms: int = MAX_THROTTLE_MS) -> None:
        self._window = window
        self._longest_ms = longest_ms
        self._rates = Tracked(lambda: Rate(window))
        self.bounds = QuotaBounds("", {})

    def charge(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count an amount that was used; return the throttle time in ms."""
        owner_and_bound = self.bounds.of(user, client_id)
        if owner_and_bound is None:
            return 0
        owner, bound = owner_and_bound
        rate = self._rates.of(owner)
        rate.record(amount, now_ms)
        return min(rate.wait_ms(bound, now_ms), self._longest_ms)

    def admit(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count an amount before it is used and return 0, or return the throttle time, uncounted.

        An amount above the bound is admitted if nothing was used before, else it would wait for
        ever.
        """
        owner_and_bound = self.bounds.of(user, client_id)
        if owner_and_bound is None:
            return 0
        owner, bound = owner_and_bound
        rate = self._rates.of(owner)
        is_first = rate.measure(now_ms)[0] == 0
        rate.record(amount, now_ms)
        wait_ms = 0 if is_first else min(rate.wait_ms(bound, now_ms), self._longest_ms)
        if wait_ms:
            rate.record(-amount, now_ms)
        return wait_ms

    def most(self, user: str, client_id: str) -> float | None:
        """Return the maximum that may be used at once; None without a bound."""
        owner_and_bound = self.bounds.of(user, client_id)
        return None if owner_and_bound is None else owner_and_bound[1] * self._window.most_s


class MutationQuota:
    """Limit of partitions that each client may create and delete."""

    def __init__(self, window: RateWindow) -> None:
        self._buckets = Tracked(lambda: TokenBucket(window))
        self.bounds = QuotaBounds("", {})

    def charge(
        self, user: str, client_id: str, amount: int, now_ms: int, *, strict: bool
    ) -> tuple[bool, int]:
        """Return whether this many may be changed, and the throttle time in ms; if not, none are
        counted.

        With `strict`, refuses while the bucket is overdrawn; else it is overdrawn further.
        """
        owner_and_bound = self.bounds.of(user, client_id)
        if owner_and_bound is None:
            return True, 0
        owner, bound = owner_and_bound
        bucket = self._buckets.of(owner)
        if strict and bucket.tokens(bound, now_ms) < 0:
            return False, bucket.wait_ms(bound, now_ms)
        bucket.take(amount, bound, now_ms)
        return True, 0 if strict else bucket.wait_ms(bound, now_ms)


class Bounded(Protocol):
    bounds: QuotaBounds


Quota = TypeVar("Quota", bound=Bounded)


class Quotas:
    """All client quotas of a broker; None for a quota without any bound."""

    def __init__(self, window: RateWindow, controller_window: RateWindow) -> None:
        self._produce = RateQuota(window)
        self._fetch = RateQuota(window)
        self._request = RateQuota(window, window.sample_ms)
        self._mutation = MutationQuota(controller_window)
        self.produce: RateQuota | None = None
        self.fetch: RateQuota | None = None
        self.request: RateQuota | None = None
        self.mutation: MutationQuota | None = None
        self.active = False
        """Whether any of the first three is set, which every request checks first."""

    def update(self, bounds: BoundsByEntity) -> None:
        """Apply new bounds; earlier use still counts."""
        self.produce = _bounded(self._produce, "producer_byte_rate", bounds)
        self.fetch = _bounded(self._fetch, "consumer_byte_rate", bounds)
        self.request = _bounded(self._request, "request_percentage", bounds)
        self.mutation = _bounded(self._mutation, "controller_mutation_rate", bounds)
        self.active = any(bound is not None for bound in (self.produce, self.fetch, self.request))


def _bounded(quota: Quota, key: str, bounds: BoundsByEntity) -> Quota | None:
    quota.bounds = QuotaBounds(key, bounds)
    return quota if quota.bounds else None


class ConnectionRates:
    """Rate limits of new connections: for all together, and per address."""

    def __init__(self, window: RateWindow) -> None:
        self._window = window
        self._all = Rate(window)
        self._by_address = Tracked(lambda: Rate(window))
        self._bounds = QuotaBounds("", {})
        self.limit = float("inf")
        """max.connection.creation.rate."""

    def update(self, bounds: BoundsByEntity) -> None:
        self._bounds = QuotaBounds("connection_creation_rate", bounds)

    def refuses_ms(self, address: str, now_ms: int) -> int:
        """Return how long, in ms, to delay an address that exceeded its rate; 0 accepts the
        connection."""
        bound = self._bounds.of_address(address)
        if bound is None:
            return 0
        rate = self._by_address.of(address)
        rate.record(1, now_ms)
        wait_ms = min(rate.wait_ms(bound, now_ms), self._window.sample_ms)
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms

    def let_in(self, now_ms: int) -> int:
        """Count a connection, and return how long, in ms, to accept no other."""
        self._all.record(1, now_ms)
        return min(self._all.wait_ms(self.limit, now_ms), self._window.sample_ms)
