"""Losses: how probable one is, whether they come in bursts, and in which.

Sources: RFC 3357 (loss distance and period), RFC 6534 (episodes); E. N. Gilbert, Bell Syst. Tech. J. 39 (1960) 1253,
and E. O. Elliott, 42 (1963) 1977; E. L. Korn and B. I. Graubard, Survey Methodology 24 (1998) 193, for the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pcitrace.errors import FitError
from pcitrace.network.sizes import WIDE

__all__ = ["GilbertElliott", "LossRatio", "Losses", "gilbert_elliott", "independence", "loss_ratio", "of_places"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95

DEPENDENT = 0.2
"""Probability of as few runs below which losses are not taken as independent. High on purpose: to take independent
losses for bursts makes the interval a little wide, to take bursts for independent makes it far too narrow."""

BLOCKS = (16, 64)
"""Blocks that the frames are cut into: at least and at most."""

LONG = 10
"""Blocks are at least this many times as long as losses are correlated."""


@dataclass(frozen=True)
class GilbertElliott:
    """A channel that is good, without loss, or bad, where every frame is lost with one probability.

    Attributes
    ----------
    to_bad, to_good : float
        Probability, a frame, that the channel turns bad, and good again.
    loss_in_bad : float
    """

    to_bad: float
    to_good: float
    loss_in_bad: float

    @property
    def ratio(self) -> float:
        """Probability that a frame is lost."""
        return self.loss_in_bad * self.to_bad / (self.to_bad + self.to_good)

    @property
    def design_effect(self) -> float:
        """By what factor the variance of the number of losses exceeds that of independent ones."""
        bad = self.to_bad / (self.to_bad + self.to_good)
        memory = 1 - self.to_bad - self.to_good
        chance = self.loss_in_bad * bad * (1 - self.loss_in_bad * bad)
        return 1 + 2 * self.loss_in_bad**2 * bad * (1 - bad) * memory / (1 - memory) / chance


@dataclass(frozen=True)
class LossRatio:
    """Probability that a frame is lost.

    Attributes
    ----------
    value, low, high : float
        With its interval of 95 %.
    sigma : float
        Standard uncertainty: half of the interval over 1.96.
    method : str
        ``exact binomial`` or ``blocks``.
    independent_p : float
        Probability that independent losses stand together as much as these.
    design_effect : float
        By what factor the variance exceeds the binomial one.
    """

    value: float
    low: float
    high: float
    sigma: float
    method: str
    independent_p: float
    design_effect: float


@dataclass(frozen=True)
class Losses:
    """The pattern of the losses.

    Attributes
    ----------
    frames : int
        Sent.
    count : int
        Lost.
    periods : array of int64
        Length of each run of lost frames (RFC 3357, loss period lengths).
    distances : array of int64
        Frames from each loss to the next (RFC 3357, loss distance).
    between : array of int64
        Loss distance from the last frame of one loss period to the first of the next (RFC 3357, inter-loss-period
        lengths): one more than arrived between.
    ratio : LossRatio
    model : GilbertElliott or None
        None where losses are too few, or as good as independent.
    """

    frames: int
    count: int
    periods: Integers
    distances: Integers
    between: Integers
    ratio: LossRatio
    model: GilbertElliott | None


def of_places(lost_at: Integers, frames: int) -> Losses:
    """Describe losses by their places in the order of sending.

    Parameters
    ----------
    lost_at : array of int64
        Places of the lost frames, rising, from 0.
    frames : int
        Frames sent.

    Raises
    ------
    FitError
        No frame was sent.
    """
    if frames < 1:
        raise FitError("no frame was sent: there is no loss to describe")
    distances = np.diff(lost_at)
    ends = np.flatnonzero(distances > 1)
    lengths = np.diff(np.concatenate([[-1], ends, [len(lost_at) - 1]])) if len(lost_at) else np.empty(0, np.int64)
    ratio = loss_ratio(lost_at, frames)
    model = gilbert_elliott(lost_at, frames) if ratio.method == "blocks" else None
    return Losses(frames, len(lost_at), lengths.astype(np.int64), distances, distances[ends], ratio, model)


def independence(lost_at: Integers, frames: int) -> float:
    """Return the probability that as few runs of losses come about where losses are independent.

    The exact distribution, given the number of losses: ``C(k - 1, r - 1) C(n - k + 1, r) / C(n, k)`` for r runs of k
    lost of n.
    """
    from scipy.special import gammaln

    lost = len(lost_at)
    if lost < 2 or lost == frames:
        return 1.0
    runs = 1 + int((np.diff(lost_at) > 1).sum())
    r = np.arange(1, runs + 1)
    r = r[r <= frames - lost + 1]

    def choose(n: float, k: npt.ArrayLike) -> Floats:
        some = np.asarray(k, dtype=np.float64)
        return np.asarray(gammaln(n + 1) - gammaln(some + 1) - gammaln(n - some + 1))

    log = choose(lost - 1, r - 1.0) + choose(frames - lost + 1, r * 1.0) - choose(frames, lost)
    return float(min(1.0, np.exp(log).sum()))


def loss_ratio(lost_at: Integers, frames: int) -> LossRatio:
    """Return the probability of a loss with an interval of 95 %.

    Exact binomial (Clopper-Pearson) where losses are independent. Else the variance is that between blocks of frames,
    and the interval the exact binomial one of as many independent frames as have that variance (Korn-Graubard).
    """
    from scipy.special import stdtrit

    lost = len(lost_at)
    value = lost / frames
    p_value = independence(lost_at, frames)
    if p_value >= DEPENDENT or lost in (0, frames):
        low, high = _exact(lost, frames)
        return LossRatio(value, low, high, (high - low) / 2 / WIDE, "exact binomial", p_value, 1.0)
    effect, blocks = _design_effect(lost_at, frames)
    few = float(stdtrit(blocks - 1, (1 + CONFIDENCE) / 2) / stdtrit(frames, (1 + CONFIDENCE) / 2))
    size = max(frames / effect / few**2, 1.0)
    low, high = _exact(value * size, size)
    return LossRatio(value, low, high, (high - low) / 2 / WIDE, "blocks", p_value, effect)


def gilbert_elliott(lost_at: Integers, frames: int) -> GilbertElliott | None:
    """Return the channel whose losses are like these; None where there are fewer than two runs of them.

    From three probabilities that the losses show (Gilbert, 1960, section 4): that a frame is lost, a; that the frame
    after a lost one is, b; that one of two around a third is, with which the bad state's own loss follows.
    """
    lost = len(lost_at)
    if lost < LEAST_LOSSES or lost > frames - LEAST_LOSSES:
        return None
    ratio = lost / frames
    after = [_together(lost_at, lag) / lost for lag in (1, 2, 3)]
    # The excess of P(lost | lost k before) over the ratio falls as memory**k: two of them give memory and height.
    excess = [one - ratio for one in after]
    if excess[0] <= 0:
        return None
    memory = float(np.clip(excess[1] / excess[0], 0.0, 0.9999)) if excess[1] > 0 else 0.0
    if memory <= 0:
        return GilbertElliott(ratio, 1 - ratio, 1.0)
    # P(lost | lost k before) - ratio = (h - ratio) memory**k, with h the loss in the bad state.
    height = float(np.clip(excess[0] / memory + ratio, ratio * 1.0001, 1.0))
    bad = ratio / height
    return GilbertElliott((1 - memory) * bad, (1 - memory) * (1 - bad), height)


LEAST_LOSSES = 10
"""Losses from which on a channel is fitted."""

MODEL_AT_MOST = 1.5
"""How much more than the scatter of blocks the model may say: from few losses it says anything."""


def _together(lost_at: Integers, lag: int) -> int:
    """Return how many losses have another one `lag` frames later."""
    place = np.searchsorted(lost_at, lost_at + lag)
    inside = place < len(lost_at)
    return int((lost_at[place[inside]] == lost_at[inside] + lag).sum())


def _design_effect(lost_at: Integers, frames: int) -> tuple[float, int]:
    """Return the factor of the variance and the number of blocks that it rests on."""
    model = gilbert_elliott(lost_at, frames)
    memory = 0.0 if model is None else 1 - model.to_bad - model.to_good
    correlated = 1 / max(1 - memory, 1 / frames)
    blocks = int(np.clip(frames / (LONG * correlated), *BLOCKS))
    blocks = max(2, min(blocks, frames // 2))
    value = len(lost_at) / frames
    edges = np.linspace(0, frames, blocks + 1)
    counts = np.histogram(lost_at, edges)[0] / np.diff(edges)
    between = float(counts.var(ddof=1)) / blocks
    scatter = max(1.0, between / (value * (1 - value) / frames))
    # Few bursts make the scatter of blocks too small as often as too large; where the channel's model says more, it
    # covers.
    modelled = 1.0 if model is None else min(model.design_effect, MODEL_AT_MOST * scatter)
    return max(scatter, modelled), blocks


def _exact(lost: float, frames: float) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson, for numbers that need not be whole."""
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE) / 2
    low = float(betaincinv(lost, frames - lost + 1, tail)) if lost > 0 else 0.0
    high = float(betaincinv(lost + 1, frames - lost, 1 - tail)) if lost < frames else 1.0
    return low, high
