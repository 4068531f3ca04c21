"""Equation 2.1 against the published numbers, and its fits against what they were made from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from pcitrace.errors import FitError
from pcitrace.estimate import line, mean
from pcitrace.latency import LatencyFit, read
from pcitrace.model import TERMS, LatencyModel, Term
from pcitrace.uncertainty import LEAST, PLACES, Comb, Errors, Shared

R_NET = 0.008
GAP = 12 * R_NET
"""Between frames on the wire: 12 bytes."""


def published(t_sw_us: float = 8.70, **changes: float) -> LatencyModel:
    """Return the published model of the ACEnic: t_nic 4.25, R_PCI (0.0235 - 0.008)/2."""
    values = {
        "t_sw_us": t_sw_us,
        "t_nic_us": 4.25,
        "R_net_us_per_byte": R_NET,
        "R_PCI_send_us_per_byte": 0.00775,
        "R_PCI_recv_us_per_byte": 0.00775,
    }
    return LatencyModel.given(**values | changes)


def terms(t_nic_sigma: float = 0.0) -> list[Term]:
    """Return the published terms but t_sw."""
    return [
        Term.given("t_nic_us", 4.25, t_nic_sigma),
        Term.given("R_net_us_per_byte", R_NET),
        Term.given("R_PCI_send_us_per_byte", 0.00758),
        Term.given("R_PCI_recv_us_per_byte", 0.00792),
    ]


# --- published numbers


def test_terms_give_the_published_line() -> None:
    model = published()
    assert model.intercept_us.value == pytest.approx(26.32, abs=0.01)
    assert model.slope_us_per_byte.value == pytest.approx(0.0235, abs=1e-12)


def test_published_intercept_leaves_the_published_t_sw() -> None:
    b = np.array([64.0, 512.0, 1024.0, 1500.0])
    model = LatencyModel.from_latency(LatencyFit.of(b, 26.32 + 0.0235 * b, [0.05] * 4), terms())
    assert round(model.terms["t_sw_us"].estimate.value, 2) == 8.70
    assert model.terms["t_sw_us"].source == "derived"
    assert model.terms["t_sw_us"].n == 4


@pytest.mark.parametrize(("length", "gap_us", "t_nic_us"), [(64, 9.4, 4.34), (1500, 20.56, 4.18)])
def test_published_gaps_give_the_published_t_nic(length: int, gap_us: float, t_nic_us: float) -> None:
    wire_us = published().factor("R_net_us_per_byte", length) * R_NET
    assert (gap_us - float(wire_us)) / 2 == pytest.approx(t_nic_us, abs=0.005)


@pytest.mark.parametrize(("length", "minimum_us"), [(512, 8.32), (1024, 16.3), (1500, 23.73)])
def test_table_4_1_is_wire_gap_and_one_pci_transfer(length: int, minimum_us: float) -> None:
    model = published()
    wire = float(model.factor("R_net_us_per_byte", length)) * R_NET
    fastest, slowest = (float(model.factor("R_PCI_send_us_per_byte", length)) * r for r in (0.00745, 0.00758))
    assert wire + GAP + fastest - 0.05 <= minimum_us <= wire + GAP + slowest + 0.05


def test_frames_shorter_than_46_bytes_take_the_wire_time_of_46() -> None:
    model = published()
    assert model.factor("R_net_us_per_byte", [0, 45, 46, 47]).tolist() == [72, 72, 72, 73]
    assert model.factor("R_PCI_send_us_per_byte", [0, 46]).tolist() == [14, 60]


# --- prediction


def test_prediction_is_the_sum_of_the_contributions() -> None:
    model = published()
    table = model.contributions()
    parts = table.drop("sum")
    assert table.loc["sum", "intercept_us"] == pytest.approx(parts["intercept_us"].sum())
    assert table.loc["sum", "slope_us_per_byte"] == pytest.approx(parts["slope_us_per_byte"].sum())
    expected = table.loc["sum", "intercept_us"] + 1000 * table.loc["sum", "slope_us_per_byte"]
    assert model.predict(1000)["latency_us"].item() == pytest.approx(expected)
    assert model.latency_us(1000).value == pytest.approx(expected)


def test_errors_of_terms_that_were_subtracted_do_not_count_twice() -> None:
    b = np.linspace(64, 1500, 13)
    fit = LatencyFit.of(b, 26.32 + 0.0235 * b, np.full(13, 0.05))
    model = LatencyModel.from_latency(fit, terms(t_nic_sigma=0.5))
    # t_nic is badly known, and so is t_sw; their sum is not.
    assert model.terms["t_sw_us"].estimate.sigma == pytest.approx(0.5, rel=0.01)
    assert model.intercept_us.sigma == pytest.approx(fit.intercept_us.sigma)
    assert model.covariance.loc["t_sw_us", "t_nic_us"] == pytest.approx(-0.25)
    predicted = model.predict([64, 1500])
    assert predicted["sigma_us"].tolist() == pytest.approx([model.latency_us(x).sigma for x in (64, 1500)])


def test_contributions_stand_beside_the_measured_fit() -> None:
    b = np.array([64.0, 512.0, 1024.0, 1500.0])
    fit = LatencyFit.of(b, 26.32 + 0.0240 * b, [0.05] * 4)
    table = LatencyModel.from_latency(fit, terms()).contributions(fit)
    assert table.loc["measured", "slope_us_per_byte"] == pytest.approx(0.0240)
    assert table.loc["difference", "slope_us_per_byte"] == pytest.approx(0.0005)
    assert table.loc["difference", "intercept_us"] == pytest.approx(0.0, abs=1e-9)
    assert table["source"].tolist() == ["derived", *["given"] * 4, "", "measured", ""]


# --- fits


def test_fit_gives_back_a_term_and_carries_the_errors_of_the_others() -> None:
    b = np.linspace(64, 1500, 20)
    truth = published(t_sw_us=7.0, R_PCI_send_us_per_byte=0.00758, R_PCI_recv_us_per_byte=0.00792)
    latency = truth.predict(b)["latency_us"].to_numpy()
    for free, expected in ((["t_sw_us"], 7.0), (["t_sw_us", "R_PCI_recv_us_per_byte"], 7.0)):
        model = LatencyModel.fit(b, latency, np.full(20, 0.05), free=free, terms=terms(t_nic_sigma=0.3))
        assert model.terms["t_sw_us"].estimate.value == pytest.approx(expected, abs=1e-6)
        assert model.terms["t_sw_us"].estimate.sigma == pytest.approx(0.3, rel=0.02)
        assert model.terms["R_PCI_recv_us_per_byte"].estimate.value == pytest.approx(0.00792, abs=1e-9)


def test_pulls_of_fits_are_normal() -> None:
    random = np.random.default_rng(7)
    b = np.linspace(64, 1500, 13)
    truth = published(R_PCI_recv_us_per_byte=0.00792, R_PCI_send_us_per_byte=0.00758)
    exact = truth.predict(b)["latency_us"].to_numpy()
    pulls = []
    for _ in range(300):
        fit = LatencyFit.of(b, exact + random.normal(0, 0.08, len(b)), np.full(len(b), 0.08))
        t_sw = LatencyModel.from_latency(fit, terms()).terms["t_sw_us"].estimate
        slope = fit.slope_us_per_byte
        pulls.append([(t_sw.value - 8.70) / t_sw.sigma, (slope.value - 0.0235) / slope.sigma])
    # Standard errors of mean and width of 300 numbers: 0.06 and 0.04.
    assert np.abs(np.mean(pulls, axis=0)).max() < 0.2
    assert np.abs(np.std(pulls, axis=0) - 1).max() < 0.15


def test_points_without_errors_take_their_own_scatter() -> None:
    random = np.random.default_rng(3)
    b = np.linspace(64, 1500, 200)
    y = 26.32 + 0.0235 * b + random.normal(0, 0.3, len(b))
    own, given_errors = LatencyFit.of(b, y), LatencyFit.of(b, y, np.full(200, 0.3))
    assert own.intercept_us.sigma == pytest.approx(given_errors.intercept_us.sigma, rel=0.15)
    assert own.p_value is None
    assert given_errors.p_value is not None
    assert given_errors.p_value == pytest.approx(chi2.sf(given_errors.chi2, given_errors.ndof), rel=1e-9)
    assert 0.001 < given_errors.p_value < 0.999


@pytest.mark.parametrize(
    ("free", "lengths", "named"),
    [
        (["t_sw_us", "t_nic_us"], [64, 512, 1500], ["t_sw_us", "t_nic_us"]),
        (["R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte"], [64, 512, 1500], ["R_PCI_send", "R_PCI_recv"]),
        (["t_sw_us", "R_net_us_per_byte"], [512, 512], ["t_sw_us", "R_net_us_per_byte"]),
        (list(TERMS), [64, 512, 1024, 1500], list(TERMS)),
    ],
)
def test_degenerate_fits_name_the_terms(free: list[str], lengths: list[int], named: list[str]) -> None:
    held = [*terms(), Term.given("t_sw_us", 8.70)]
    with pytest.raises(FitError) as error:
        LatencyModel.fit(lengths, np.array(lengths) * 0.02, [0.1] * len(lengths), free=free, terms=held)
    assert all(name in str(error.value) for name in named)


def test_terms_that_are_determined_are_not_named() -> None:
    free = ["t_sw_us", "t_nic_us", "R_net_us_per_byte"]
    with pytest.raises(FitError, match="t_sw_us and t_nic_us") as error:
        LatencyModel.fit([64, 512, 1500], [28, 38, 61], [0.1] * 3, free=free, terms=terms())
    assert "R_net" not in str(error.value)


@pytest.mark.parametrize(
    ("lengths", "latencies", "sigmas", "text"),
    [
        ([64], [28.0], [0.1], "two or more"),
        ([64, 64], [28.0, 28.1], [0.1, 0.1], "1 length"),
        ([64, 512], [28.0, 38.0], None, "without errors"),
        ([64, 512], [28.0], None, "as many"),
        ([64, 512, 900], [28.0, np.nan, 30.0], None, "finite"),
        ([64, 512], [28.0, 38.0], [0.1, 0.0], "not positive"),
        ([], [], None, "as many"),
    ],
)
def test_latencies_that_are_no_line_are_refused(
    lengths: list[int], latencies: list[float], sigmas: list[float] | None, text: str
) -> None:
    with pytest.raises(FitError, match=text):
        LatencyFit.of(lengths, latencies, sigmas)


def test_a_missing_term_is_named() -> None:
    with pytest.raises(FitError, match="t_sw_us"):
        LatencyModel(terms())
    with pytest.raises(FitError, match="t_nick"):
        LatencyModel.fit([64, 512], [28, 38], [1, 1], free=["t_nick"], terms=terms())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("length_bytes,latency_us\n64,28\n", "sigma_us"),
        ("length_bytes,latency_us,sigma_us,n\n", "there must be one"),
        ("length_bytes,latency_us,sigma_us,n\n64,,1,1\n", "every row"),
        ("length_bytes,latency_us,sigma_us,n\n64,fast,1,1\n", "not a table"),
    ],
)
def test_a_file_that_is_no_latency_table_is_refused(tmp_path, text: str, said: str) -> None:
    file = tmp_path / "latency.csv"
    file.write_text(text)
    with pytest.raises(FitError, match=said):
        read(file)


# --- estimates


def errors(n: int, sigma: float) -> Errors:
    """Return independent errors."""
    return Errors(np.full(n, sigma**2))


def test_an_error_that_all_share_does_not_average_out() -> None:
    alone = errors(100, 1.0)
    together = alone.with_shared(np.full(100, 1.0), np.zeros(100, dtype=np.int64))
    opposite = alone.with_shared(np.tile([1.0, -1.0], 50), np.zeros(100, dtype=np.int64))
    values = np.zeros(100)
    assert mean(values, alone).sigma_measurement == pytest.approx(0.1)
    assert mean(values, together).sigma_measurement == pytest.approx(np.hypot(0.1, 1.0))
    assert mean(values, opposite).sigma_measurement == pytest.approx(0.1)
    halves = Errors(np.zeros(100), (Shared(np.full(100, 1.0), np.repeat([0, 1], 50)),))
    assert mean(values, halves).sigma_measurement == pytest.approx(1 / np.sqrt(2))


@pytest.mark.parametrize(
    "place",
    [np.full(60, 0.3), np.arange(60) / 4, np.arange(60) * 0.2503, np.random.default_rng(3).random(60)],
    ids=["alike", "four places", "nearly four", "any"],
)
def test_edges_of_one_clock_are_wrong_as_their_places_between_the_samples_say(place: np.ndarray) -> None:
    """Sampled one by one, for every place that the first may have."""
    first = np.linspace(0, 1, 5000, endpoint=False)[:, None]
    late = (np.ceil(first + place) - (first + place)).mean(axis=1)
    alone = np.full(60, 1 / 12)
    comb = Comb(np.ones((1, 60)), (place[None] * PLACES).astype(np.int64) % PLACES)
    found = mean(np.zeros(60), Errors(alone, (), (comb,))).sigma_measurement
    assert found == pytest.approx(np.sqrt(max(late.var(), LEAST / 12 / 60)), rel=0.03)


def test_errors_of_edges_that_seem_to_cancel_do_so_in_part_only() -> None:
    # Both edges of each interval lie alike between the samples: it would be exact if CLK did not jitter.
    comb = Comb(np.array([np.full(60, -1.0), np.ones(60)]), np.full((2, 60), PLACES // 3))
    intervals = Errors(np.full(60, 2 / 12), (), (comb,))
    assert mean(np.zeros(60), intervals).sigma_measurement == pytest.approx(np.sqrt(LEAST * 2 / 12 / 60))
    assert mean(np.zeros(30), intervals.scaled(2.0)[::2]).sigma_measurement == pytest.approx(
        2 * np.sqrt(LEAST * 2 / 12 / 30)
    )


def test_what_may_belong_to_a_line_is_part_of_its_sigma() -> None:
    x, y = np.array([60.0, 300.0, 700.0, 1100.0, 1500.0]), np.array([0.6, 3.1, 6.9, 11.2, 15.0])
    more = np.array([[1400.0, 500.0], [17.0, 5.5]])
    without = line(x, y, errors(5, 0.0))
    moved = np.array([np.polyfit(np.r_[x, one], np.r_[y, two], 1) - np.polyfit(x, y, 1) for one, two in more.T])
    found = line(x, y, errors(5, 0.0), unclear=(more[0], more[1]))
    assert found.slope.value == without.slope.value
    assert found.slope.sigma_measurement == pytest.approx(np.linalg.norm(moved[:, 0]))
    assert found.intercept.sigma_measurement == pytest.approx(np.linalg.norm(moved[:, 1]))


def test_scatter_leaves_out_what_the_sampling_adds() -> None:
    random = np.random.default_rng(1)
    sampled = random.normal(0, 1.0, 4000)
    assert mean(sampled, errors(4000, 1.0)).sigma_frames == pytest.approx(0, abs=0.005)
    both = mean(sampled + random.normal(0, 2.0, 4000), errors(4000, 1.0))
    assert both.sigma_frames == pytest.approx(2 / np.sqrt(4000), rel=0.05)
    assert both.sigma == pytest.approx(np.hypot(2, 1) / np.sqrt(4000), rel=0.05)


@given(
    st.lists(st.integers(0, 1500), min_size=3, max_size=40).filter(lambda x: len(set(x)) > 1),
    st.floats(-50, 50),
    st.floats(-1, 1),
)
def test_a_line_gives_back_intercept_and_slope(x: list[int], intercept: float, slope: float) -> None:
    found = line(np.array(x, float), intercept + slope * np.array(x, float), errors(len(x), 0.1))
    assert found.slope.value == pytest.approx(slope, abs=1e-6)
    assert found.intercept.value == pytest.approx(intercept, abs=1e-3)
    assert found.slope.sigma_measurement == pytest.approx(0.1 / (np.std(x) * np.sqrt(len(x))), rel=1e-6)


def test_lengths_that_vary_no_more_than_their_error_give_no_slope() -> None:
    x = np.array([1499.0, 1500.0, 1501.0, 1500.0])
    blurred = line(x, np.ones(4), errors(4, 0.1), x_sigma=np.full(4, 0.5))
    assert blurred.slope.value is None
    assert "uncertainty" in blurred.slope.reason
    assert line(x, np.ones(4), errors(4, 0.1)).slope.value == pytest.approx(0)


def test_one_length_gives_no_slope() -> None:
    found = line(np.full(5, 64.0), np.arange(5.0), errors(5, 0.1)).slope
    assert (found.value, found.sigma_measurement, found.n, found.source) == (None, None, 5, "unknown")
    assert "two" in found.reason
